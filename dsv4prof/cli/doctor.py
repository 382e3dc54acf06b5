"""`dsv4prof doctor`: what works on this machine, and what to install for the rest."""

from __future__ import annotations

from typing import Annotated

import typer

from dsv4prof.cli import console
from dsv4prof.cli.help import add
from dsv4prof.cli.options import Format, SessionsDir, ShowSettings, choose

NAMES = ("sessions_dir", "format")


def register(app: typer.Typer) -> None:
    add(app, "doctor", doctor, "dsv4prof doctor", "dsv4prof doctor --profiler")


def doctor(
    profiler: Annotated[bool, typer.Option("--profiler", help="Try the known faults of torch's profiler here")] = False,
    sessions_dir: SessionsDir = None,
    format: Format = None,
    show_settings: ShowSettings = False,
) -> int:
    """Check what works on this machine."""
    chosen = choose(NAMES, {"sessions_dir": sessions_dir, "format": format}, show=show_settings)
    if profiler:
        from dsv4prof.api.faults import profiler_doctor

        return console.emit(profiler_doctor(progress=console.note), chosen["format"])
    from dsv4prof import api

    return console.emit(api.doctor(chosen["sessions_dir"]), chosen["format"])
