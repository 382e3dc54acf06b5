"""`dsv4prof analyze`: what made the steps of a session or trace slow."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dsv4prof.cli import console
from dsv4prof.cli.help import add
from dsv4prof.cli.options import setting

NAMES = ("sessions_dir", "format", "fail_on")


def register(app: typer.Typer) -> None:
    add(app, "analyze", analyze, "dsv4prof analyze latest", "dsv4prof analyze merged.json.gz --format json")


def analyze(
    inputs: Annotated[list[str], typer.Argument(help="A session (id or latest), a merged trace, or rank files.")],
    sessions_dir: Annotated[str | None, setting("sessions_dir")] = None,
    format: Annotated[str | None, setting("format")] = None,
    fail_on: Annotated[str | None, setting("fail_on")] = None,
) -> int:
    """Findings and tables of a recorded session or trace: phases, acceptance, graphs, host reads."""
    from dsv4prof import api, settings

    chosen = settings.resolve(NAMES, {"sessions_dir": sessions_dir, "format": format, "fail_on": fail_on})
    report = api.analyze(inputs, sessions_dir=Path(chosen["sessions_dir"]), fail_on=chosen["fail_on"])
    return console.emit(report, chosen["format"])
