"""Option declarations shared by the commands; help texts come from the settings table, the one place that has them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any

import typer

from dsv4prof.cli import console
from dsv4prof.cli.help import SHOW_SETTINGS
from dsv4prof.settings import SETTINGS, Settings, resolve


def setting(name: str) -> Any:
    """A typer option for a setting. None stands for "not given", so that weaker sources can decide."""
    declared = SETTINGS[name]
    default = "" if declared.default is None else f" [{_plain(declared.default)}]"
    flag = f"{declared.flag}/--no-{declared.flag[2:]}" if declared.kind is bool else declared.flag
    metavar = {str: declared.metavar, int: "N", float: "X", bool: None}[declared.kind]
    return typer.Option(flag, help=declared.help + default, metavar=metavar, show_default=False)


def _plain(value: object) -> str:
    return {True: "on", False: "off"}.get(value, str(value)) if isinstance(value, bool) else str(value)


SessionsDir = Annotated[str | None, setting("sessions_dir")]
Format = Annotated[str | None, setting("format")]
FailOn = Annotated[str | None, setting("fail_on")]
ShowSettings = Annotated[bool, typer.Option(SHOW_SETTINGS, help="Print the settings with their sources, and exit")]


def choose(names: Iterable[str], given: Mapping[str, object], *, show: bool) -> Settings:
    """The settings of a command. With `show` they are its result, and the command ends here."""
    chosen = resolve(names, given)
    if show:
        from dsv4prof import api

        console.emit(api.settings_report(chosen.with_sources()), chosen["format"])
        raise typer.Exit
    return chosen
