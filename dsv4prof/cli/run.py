"""`dsv4prof run`: serve prompts on the embedded engine; with --profile record every rank and report."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dsv4prof.cli import console
from dsv4prof.cli.help import add
from dsv4prof.cli.options import ENGINE_NAMES, ShowSettings, choose, engine_fields, takes
from dsv4prof.settings import PLAN_NAMES, plan_of

if TYPE_CHECKING:
    from dsv4prof.settings import Settings
    from dsv4prof.target.spec import RunSpec

NAMES = (
    "tp", "dp", *ENGINE_NAMES, "requests", "max_new_tokens", "prompts", "port", "name", *PLAN_NAMES, "sessions_dir",
    "format", "fail_on",
)  # fmt: skip


def register(app: typer.Typer) -> None:
    add(app, "run", run, "dsv4prof run --profile", "dsv4prof run --profile --exact-num-tokens --format json")


@takes(*NAMES)
def run(
    profile: Annotated[bool, typer.Option("--profile", help="Record every rank, merge and report")] = False,
    show_text: Annotated[bool, typer.Option("--show-text", help="Print how the model went on with prompts")] = False,
    fault_watch: Annotated[
        bool, typer.Option("--fault-watch", help="Keep each rank's last launches, for its end")
    ] = False,
    fault_watch_timeout: Annotated[
        float,
        typer.Option(
            "--fault-watch-timeout", metavar="S", help="When a still step is a hang [300]", show_default=False
        ),
    ] = 300.0,
    show_settings: ShowSettings = False,
    **given: Any,
) -> int:
    """Serve prompts; with --profile record and report."""
    chosen = choose(NAMES, given, show=show_settings)
    from dsv4prof import api

    watch = {"fault_watch": fault_watch, "fault_watch_timeout_s": fault_watch_timeout}
    report = api.run(
        _spec(chosen, profile=profile, show_text=show_text, **watch), fail_on=chosen["fail_on"], progress=console.note
    )
    return 0 if report is None else console.emit(report, chosen["format"])


def _spec(chosen: Settings, *, profile: bool, show_text: bool, **watch: Any) -> RunSpec:
    from dsv4prof.target.spec import RunSpec

    same = ("tp", "dp", "requests", "max_new_tokens", "prompts", "name", "port")
    return RunSpec(
        **engine_fields(chosen),
        **{name: chosen[name] for name in same},
        profile=profile,
        show_text=show_text,
        **watch,
        plan=plan_of(chosen),
        root=chosen["sessions_dir"],
        settings=chosen.with_sources(),
        command=sys.argv,
    )
