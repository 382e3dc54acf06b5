"""`dsv4prof query`: SQL over a merged trace."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dsv4prof.cli import console
from dsv4prof.cli.help import add
from dsv4prof.cli.options import Format, SessionsDir, ShowSettings, choose
from dsv4prof.errors import UsageError

NAMES = ("sessions_dir", "format")


def register(app: typer.Typer) -> None:
    example = "'SELECT rank, sum(dur_ns) FROM kernels GROUP BY rank'"
    add(app, "query", query, "dsv4prof query --schema", f"dsv4prof query latest {example}")


def query(
    inputs: Annotated[
        list[str] | None, typer.Argument(metavar="INPUTS", help="A session's id or trace files, and SQL")
    ] = None,
    perfetto: Annotated[
        bool, typer.Option("--perfetto", help="PerfettoSQL over Perfetto's import of one file")
    ] = False,
    schema: Annotated[bool, typer.Option("--schema", help="List the tables and columns, and exit")] = False,
    window: Annotated[
        str | None, typer.Option("--window", metavar="NAME", help="Which window of several; default: the first")
    ] = None,
    sessions_dir: SessionsDir = None,
    format: Format = None,
    show_settings: ShowSettings = False,
) -> int:
    """Ask a trace in SQL."""
    chosen = choose(NAMES, {"sessions_dir": sessions_dir, "format": format}, show=show_settings)
    from dsv4prof import api

    if schema:
        return console.emit(api.query_schema(), chosen["format"])
    if not inputs or len(inputs) < 2:
        raise UsageError("name a trace and then a statement", hint="dsv4prof query latest 'SELECT * FROM ranks'")
    report = api.query(
        inputs[:-1], inputs[-1], sessions_dir=Path(chosen["sessions_dir"]), window=window, perfetto=perfetto
    )
    return console.emit(report, chosen["format"])
