"""`dsv4prof attach`: profile a running server by its URL, collect every rank's file, merge and report."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dsv4prof.cli import console
from dsv4prof.cli.help import add
from dsv4prof.cli.options import FailOn, Format, SessionsDir, ShowSettings, choose, setting
from dsv4prof.errors import UsageError

if TYPE_CHECKING:
    from dsv4prof.recorder.plan import RecordPlan

# What a server of today can be asked for.
_STAGES = ("prefill", "decode")
NAMES = ("stack", "shapes", "name", "sessions_dir", "format", "fail_on")


def register(app: typer.Typer) -> None:
    add(
        app,
        "attach",
        attach,
        "dsv4prof attach http://127.0.0.1:30000 --steps 24",
        "dsv4prof attach http://127.0.0.1:30000 --seconds 5 --load none",
    )


def attach(
    url: Annotated[str, typer.Argument(metavar="URL", help="The server, for example http://127.0.0.1:30000")],
    steps: Annotated[
        int | None, typer.Option("--steps", metavar="N", help="Steps to record; default: --seconds")
    ] = None,
    start_step: Annotated[
        int | None, typer.Option("--start-step", metavar="N", help="First step, as the server counts them")
    ] = None,
    seconds: Annotated[float, typer.Option("--seconds", metavar="X", help="Without --steps: how long [3]")] = 3.0,
    by_stage: Annotated[bool, typer.Option("--by-stage", help="A window for prefill, one for decode")] = False,
    stages: Annotated[str | None, typer.Option("--stages", metavar="NAMES", help="Only these: prefill,decode")] = None,
    activities: Annotated[
        str, typer.Option("--activities", metavar="NAMES", help="Such as cpu+gpu or cpu [auto]")
    ] = "auto",
    stack: Annotated[bool | None, setting("stack")] = None,
    shapes: Annotated[bool | None, setting("shapes")] = None,
    load: Annotated[
        str, typer.Option("--load", metavar="NAME", help="auto: requests if it is idle; none [auto]")
    ] = "auto",
    output_dir: Annotated[
        str | None, typer.Option("--output-dir", metavar="HERE[:THERE]", help="A folder that both see")
    ] = None,
    patience: Annotated[
        float, typer.Option("--patience", metavar="X", help="Seconds to wait while nothing comes [60]")
    ] = 60.0,
    api_key: Annotated[
        str | None, typer.Option("--api-key", metavar="KEY", help="The server's key; - reads it from stdin")
    ] = None,
    name: Annotated[str | None, typer.Option("--name", metavar="NAME", help="Of the session's folder [attach]")] = None,
    sessions_dir: SessionsDir = None,
    format: Format = None,
    fail_on: FailOn = None,
    show_settings: ShowSettings = False,
) -> int:
    """Profile a running server and report."""
    given = {
        "stack": stack,
        "shapes": shapes,
        "name": name,
        "sessions_dir": sessions_dir,
        "format": format,
        "fail_on": fail_on,
    }
    chosen = choose(NAMES, given, show=show_settings)
    from dsv4prof.api.attaching import attach as profile_server
    from dsv4prof.recorder.wording import recorded_command
    from dsv4prof.target.remote.spec import AttachSpec

    here, there = _folders(output_dir)
    spec = AttachSpec(
        url=url,
        plan=_plan(
            steps=steps,
            start_step=start_step,
            stages=_stages(stages, by_stage=by_stage, steps=steps),
            activities=activities,
            stack=chosen["stack"],
            shapes=chosen["shapes"],
        ),
        seconds=seconds,
        load=load,  # type: ignore[arg-type]
        output_dir=here,
        server_dir=there,
        patience=patience,
        root=Path(chosen["sessions_dir"]),
        name=chosen["name"],
        api_key=sys.stdin.readline().strip() if api_key == "-" else api_key,
        settings=chosen.with_sources(),
        command=recorded_command(sys.argv),
    )
    report = profile_server(spec, fail_on=chosen["fail_on"], progress=console.note)
    return console.emit(report, chosen["format"])


def _plan(
    *, steps: int | None, start_step: int | None, stages: str, activities: str, stack: bool, shapes: bool
) -> RecordPlan:
    from dsv4prof.recorder.plan import RecordPlan
    from dsv4prof.recorder.stages import parse_stages

    return RecordPlan(
        active=steps,
        start_step=start_step,
        stages=parse_stages(word for word in stages.split(",") if word.strip()),
        activities=activities,
        with_stack=stack,
        record_shapes=shapes,
    )


def _stages(given: str | None, *, by_stage: bool, steps: int | None) -> str:
    """The stages to record, joined by commas. Raises UsageError in terms of this command's options."""
    if given is None and not by_stage:
        return ""
    option = "--by-stage" if given is None else "--stages"
    words = [word.strip().lower() for word in (",".join(_STAGES) if given is None else given).split(",")]
    if wrong := [word for word in words if word not in _STAGES]:
        what = f"unknown stage {wrong[0]!r}" if wrong[0] else "--stages names no stage"
        raise UsageError(what, hint="prefill, decode or prefill,decode")
    if steps is None:
        raise UsageError(f"{option} needs --steps: how many steps of each stage", hint=f"{option} --steps 8")
    return ",".join(words)


def _folders(given: str | None) -> tuple[Path | None, str | None]:
    """`HERE:THERE`, as for a container's volume."""
    if given is None:
        return None, None
    here, colon, there = given.partition(":")
    if not here.strip() or (colon and not there.strip()):
        raise UsageError(f"--output-dir: {given!r} leaves out a folder", hint="--output-dir DIR or HERE:THERE")
    return Path(here).absolute(), there or None
