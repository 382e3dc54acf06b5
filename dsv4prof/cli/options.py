"""Option declarations shared by the commands; help texts come from the settings table, the one place that has them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from inspect import Parameter, signature
from typing import Annotated, Any, TypeVar, get_type_hints

import typer

from dsv4prof.cli import console
from dsv4prof.cli.help import SHOW_SETTINGS
from dsv4prof.setting import Plain
from dsv4prof.settings import SETTINGS, Settings, resolve

Command = TypeVar("Command", bound=Callable[..., int])


def setting(name: str, own: Plain | None = None) -> Any:
    """A typer option for a setting. None stands for "not given", so that weaker sources can decide. `own` is the
    default of this command, where it differs from the table's.
    """
    declared = SETTINGS[name]
    told = declared.default if own is None else own
    default = "" if told is None else f" [{_plain(told)}]"
    flag = f"{declared.flag}/--no-{declared.flag[2:]}" if declared.kind is bool else declared.flag
    metavar = {str: declared.metavar, int: "N", float: "X", bool: None}[declared.kind]
    return typer.Option(flag, help=declared.help + default, metavar=metavar, show_default=False)


# What the embedded engine can be asked for, by whichever command starts it.
ENGINE_NAMES = (
    "model", "device", "dtype", "ep", "drafts", "exact_num_tokens", "backend", "page_size", "cache_mb", "radix",
    "mixed", "overlap", "graphs", "draft_extend_graph", "plan_on", "faults", "simulate_accept_len", "max_requests",
    "chunk_tokens", "context_len", "threads",
)  # fmt: skip


def takes(*names: str, defaults: Mapping[str, Plain] | None = None) -> Callable[[Command], Command]:
    """Give a command an option for each of these settings; it receives them by name in its `**given`. `defaults` as
    of `choose`, for the help.
    """
    of_command = defaults or {}

    def decorate(command: Command) -> Command:
        hints = get_type_hints(command, include_extras=True)
        own = [
            each.replace(annotation=hints[each.name])
            for each in signature(command).parameters.values()
            if each.kind is not Parameter.VAR_KEYWORD
        ]
        asked = [each for each in own if each.name != "show_settings"]
        last = [each for each in own if each.name == "show_settings"]
        command.__signature__ = signature(command).replace(  # type: ignore[attr-defined]
            parameters=[*asked, *(_parameter(name, of_command.get(name)) for name in names), *last]
        )
        return command

    return decorate


def _parameter(name: str, own: Plain | None) -> Parameter:
    kind = SETTINGS[name].kind
    return Parameter(
        name, Parameter.POSITIONAL_OR_KEYWORD, default=None, annotation=Annotated[kind | None, setting(name, own)]
    )


def engine_fields(chosen: Settings) -> dict[str, Any]:
    """The fields of a RunSpec that ENGINE_NAMES decide."""
    fields = {name: chosen[name] for name in ENGINE_NAMES if name not in ("drafts", "faults")}
    faults = tuple(filter(None, (chosen["faults"] or "").split(",")))
    return fields | {"num_drafts": chosen["drafts"], "faults": faults}


def _plain(value: object) -> str:
    return {True: "on", False: "off"}.get(value, str(value)) if isinstance(value, bool) else str(value)


SessionsDir = Annotated[str | None, setting("sessions_dir")]
Allow = Annotated[list[str] | None, setting("allow")]
Format = Annotated[str | None, setting("format")]
FailOn = Annotated[str | None, setting("fail_on")]
ShowSettings = Annotated[bool, typer.Option(SHOW_SETTINGS, help="Print the settings with their sources, and exit")]


def choose(
    names: Iterable[str], given: Mapping[str, object], *, show: bool, defaults: Mapping[str, Plain] | None = None
) -> Settings:
    """The settings of a command; `defaults` are its own, where they differ from the table's. With `show` the settings
    are its result, and the command ends here.
    """
    chosen = resolve(names, given, defaults=defaults)
    if show:
        from dsv4prof import api

        console.emit(api.settings_report(chosen.with_sources()), chosen["format"])
        raise typer.Exit
    return chosen
