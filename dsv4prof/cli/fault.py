"""`dsv4prof fault`: what a rank that died or hung has left, and what the logs say of it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dsv4prof.cli import console
from dsv4prof.cli.help import Group, add, examples, show_help_without_command
from dsv4prof.cli.options import Format, SessionsDir, ShowSettings, choose

Logs = Annotated[
    list[Path] | None, typer.Option("--log", metavar="FILE", help="A log as well: of a rank, dmesg; may be repeated")
]


def register(app: typer.Typer) -> None:
    lines = ("dsv4prof fault show latest", "dsv4prof fault hang steps.jsonl api.log")
    group = typer.Typer(
        cls=Group, help="Read what a death or a hang left.", epilog=examples(*lines), rich_markup_mode=None
    )
    add(group, "show", show, lines[0], "dsv4prof fault show rank0.faultring --log server.log")
    add(group, "hang", hang, lines[1], "dsv4prof fault hang steps.jsonl --format json")
    group.callback(invoke_without_command=True)(show_help_without_command)
    app.add_typer(group, name="fault")


def show(
    target: Annotated[str, typer.Argument(metavar="TARGET", help="A session, a fault record, or a log")],
    log: Logs = None,
    sessions_dir: SessionsDir = None,
    format: Format = None,
    show_settings: ShowSettings = False,
) -> int:
    """Name the work in flight, its memory and what is unsure."""
    given = {"sessions_dir": sessions_dir, "format": format}
    chosen = choose(("sessions_dir", "format"), given, show=show_settings)
    from dsv4prof import api

    report = api.fault_show(target, logs=log or [], root=Path(chosen["sessions_dir"]))
    return console.emit(report, chosen["format"])


def hang(
    steps: Annotated[Path, typer.Argument(metavar="STEPS", help="A server's log of steps, JSON lines")],
    logs: Annotated[list[Path] | None, typer.Argument(metavar="LOG", help="Its other logs")] = None,
    format: Format = None,
    show_settings: ShowSettings = False,
) -> int:
    """Say which step hung, on what, and what changed before."""
    chosen = choose(("format",), {"format": format}, show=show_settings)
    from dsv4prof import api

    return console.emit(api.fault_hang(steps, logs=logs or []), chosen["format"])
