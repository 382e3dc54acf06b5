"""`dsv4prof audit trace`: the syncs of a recorded trace, ranked."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dsv4prof.cli import console
from dsv4prof.cli.options import Allow, FailOn, Format, SessionsDir, ShowSettings, choose

NAMES = ("allow", "sessions_dir", "format", "fail_on")


def trace(
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
    """Rank the syncs of a recorded trace by what they cost."""
    given = {"allow": allow or None, "sessions_dir": sessions_dir, "format": format, "fail_on": fail_on}
    chosen = choose(NAMES, given, show=show_settings)
    from dsv4prof import api

    report = api.audit_trace(
        inputs,
        sessions_dir=Path(chosen["sessions_dir"]),
        window=window,
        allow=chosen["allow"],
        fail_on=chosen["fail_on"],
    )
    return console.emit(report, chosen["format"])
