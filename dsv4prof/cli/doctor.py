"""`dsv4prof doctor`: what works on this machine, and what to install for the rest."""

from __future__ import annotations

from typing import Annotated

import typer

from dsv4prof.cli import console
from dsv4prof.cli.help import add
from dsv4prof.cli.options import setting


def register(app: typer.Typer) -> None:
    add(app, "doctor", doctor, "dsv4prof doctor", "dsv4prof doctor --format json")


def doctor(format: Annotated[str | None, setting("format")] = None) -> int:
    """What works on this machine, and what to install for the rest."""
    from dsv4prof import api, settings

    chosen = settings.resolve(("format", "sessions_dir"), {"format": format})
    return console.emit(api.doctor(chosen["sessions_dir"]), chosen["format"])
