"""`dsv4prof audit run`: a command of yours, watched."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from dsv4prof.cli import console
from dsv4prof.cli.help import CONTEXT, Command, examples
from dsv4prof.cli.options import FailOn, Format, SessionsDir, ShowSettings, choose
from dsv4prof.errors import UsageError

NAMES = ("sessions_dir", "format", "fail_on")
LINES = (
    "dsv4prof audit run --no-gpu -- pytest tests/test_metadata.py",
    "dsv4prof audit run --max-syncs 1 --warmup 5 -- python serve.py",
)


def register(group: typer.Typer) -> None:
    # What follows the program's name are its own options.
    context: dict[Any, Any] = {**CONTEXT, "allow_interspersed_args": False}
    group.command("run", cls=Command, epilog=examples(*LINES), context_settings=context)(run)


def run(
    command: Annotated[
        list[str], typer.Argument(metavar="CMD", help="A program that starts Python, and its arguments")
    ],
    no_gpu: Annotated[bool, typer.Option("--no-gpu", help="On shadow tensors that say cuda")] = False,
    vendor: Annotated[str, typer.Option("--vendor", metavar="V", help="What shadows say: cuda or hip")] = "cuda",
    layers: Annotated[
        str | None, typer.Option("--layers", metavar="A,B", help="Layers, or all; default: what costs little")
    ] = None,
    max_syncs: Annotated[
        int | None, typer.Option("--max-syncs", metavar="N", help="Exit 1 where a step waits more often", min=0)
    ] = None,
    warmup: Annotated[int, typer.Option("--warmup", metavar="N", help="First steps that do not count", min=0)] = 0,
    disallow: Annotated[
        str | None, typer.Option("--disallow", metavar="A,B", help="Exit 1 on d2h, h2d, explicit or alloc")
    ] = None,
    region: Annotated[
        list[str] | None, typer.Option("--region", metavar="MODULE:FUNCTION", help="Name syncs inside a function")
    ] = None,
    hazards: Annotated[bool, typer.Option("--hazards", help="Also look for what syncs protect")] = False,
    fault_watch: Annotated[bool, typer.Option("--fault-watch", help="Keep the last launches, for a bad end")] = False,
    exercised: Annotated[
        list[str] | None, typer.Option("--exercised", metavar="PATH", help="Note which functions ran, for --export")
    ] = None,
    export: Annotated[
        Path | None, typer.Option("--export", metavar="FILE", help="Write what the run proved, for audit code")
    ] = None,
    sessions_dir: SessionsDir = None,
    format: Format = None,
    fail_on: FailOn = None,
    show_settings: ShowSettings = False,
) -> int:
    """Watch a command for host syncs."""
    given = {"sessions_dir": sessions_dir, "format": format, "fail_on": fail_on}
    chosen = choose(NAMES, given, show=show_settings)
    from dsv4prof.api.audit_watching import ON_A_GPU, WatchRequest, audit_run

    if vendor not in ("cuda", "hip"):
        raise UsageError(f"--vendor {vendor!r} is not known", hint="cuda or hip")
    request = WatchRequest(
        no_gpu=no_gpu,
        vendor=vendor,  # type: ignore[arg-type]
        layers=ON_A_GPU if layers == "all" else _words(layers) or None,
        max_syncs=max_syncs,
        warmup=warmup,
        disallow=_words(disallow),
        regions=tuple(region or ()),
        hazards=hazards,
        fault_watch=fault_watch,
        exercised=tuple(exercised or ()),
        export=export,
        fail_on=chosen["fail_on"],
        own_stdout=chosen["format"] == "text",
        sessions_dir=Path(chosen["sessions_dir"]),
    )
    return console.emit(audit_run(command, request), chosen["format"])


def _words(text: str | None) -> Any:
    return tuple(word.strip() for word in (text or "").split(",") if word.strip())
