"""`dsv4prof merge`: rank files -> one trace that Perfetto opens without dropping anything."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dsv4prof.cli import console
from dsv4prof.cli.help import add
from dsv4prof.cli.options import setting

NAMES = ("sessions_dir", "format")


def register(app: typer.Typer) -> None:
    add(app, "merge", merge, "dsv4prof merge latest", "dsv4prof merge rank0.trace.json.gz rank1.trace.json.gz")


def merge(
    inputs: Annotated[list[str], typer.Argument(help="Rank files, a folder of them, or a session (id or latest).")],
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Where to write; .json or .json.gz.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite a file that is not ours.")] = False,
    allow_partial: Annotated[
        bool, typer.Option("--allow-partial", help="A missing, cut or repaired rank still exits 0.")
    ] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Refuse a missing, cut or repaired rank.")] = False,
    sessions_dir: Annotated[str | None, setting("sessions_dir")] = None,
    format: Annotated[str | None, setting("format")] = None,
) -> int:
    """Merge the traces of all ranks into one Perfetto trace."""
    from dsv4prof import api, settings

    chosen = settings.resolve(NAMES, {"sessions_dir": sessions_dir, "format": format})
    report = api.merge(
        inputs,
        sessions_dir=Path(chosen["sessions_dir"]),
        output=output,
        force=force,
        allow_partial=allow_partial,
        strict=strict,
    )
    return console.emit(report, chosen["format"])
