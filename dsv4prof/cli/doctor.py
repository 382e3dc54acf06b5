"""`dsv4prof doctor`: what works on this machine, and what to install for the rest."""

from __future__ import annotations

import typer

from dsv4prof.cli import console
from dsv4prof.cli.help import add
from dsv4prof.cli.options import Format, SessionsDir, ShowSettings, choose

NAMES = ("sessions_dir", "format")


def register(app: typer.Typer) -> None:
    add(app, "doctor", doctor, "dsv4prof doctor", "dsv4prof doctor --format json")


def doctor(sessions_dir: SessionsDir = None, format: Format = None, show_settings: ShowSettings = False) -> int:
    """Check what works on this machine."""
    chosen = choose(NAMES, {"sessions_dir": sessions_dir, "format": format}, show=show_settings)
    from dsv4prof import api

    return console.emit(api.doctor(chosen["sessions_dir"]), chosen["format"])
