"""`dsv4prof analyze`: what made the steps of a session or trace slow."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dsv4prof.cli import console
from dsv4prof.cli.help import add
from dsv4prof.cli.options import Allow, FailOn, Format, SessionsDir, ShowSettings, choose

NAMES = ("allow", "sessions_dir", "format", "fail_on")


def register(app: typer.Typer) -> None:
    add(app, "analyze", analyze, "dsv4prof analyze latest", "dsv4prof analyze latest --format json")


def analyze(
    inputs: Annotated[
        list[str], typer.Argument(metavar="INPUTS", help="A session's id, a merged trace, or rank files")
    ],
    window: Annotated[
        str | None, typer.Option("--window", metavar="NAME", help="Which window of several; default: the first")
    ] = None,
    allow: Allow = None,
    sessions_dir: SessionsDir = None,
    format: Format = None,
    fail_on: FailOn = None,
    show_settings: ShowSettings = False,
) -> int:
    """Say what made the recorded steps slow."""
    given = {"allow": allow or None, "sessions_dir": sessions_dir, "format": format, "fail_on": fail_on}
    chosen = choose(NAMES, given, show=show_settings)
    from dsv4prof import api

    report = api.analyze(
        inputs,
        sessions_dir=Path(chosen["sessions_dir"]),
        window=window,
        allow=chosen["allow"],
        fail_on=chosen["fail_on"],
    )
    return console.emit(report, chosen["format"])
