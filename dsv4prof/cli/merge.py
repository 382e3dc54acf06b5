"""`dsv4prof merge`: rank files -> one trace that Perfetto opens without dropping anything."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dsv4prof.cli import console
from dsv4prof.cli.help import add
from dsv4prof.cli.options import Format, SessionsDir, ShowSettings, choose

NAMES = ("sessions_dir", "format")


def register(app: typer.Typer) -> None:
    add(app, "merge", merge, "dsv4prof merge latest", "dsv4prof merge latest --strict -o all.json.gz")


def merge(
    inputs: Annotated[
        list[str], typer.Argument(metavar="INPUTS", help="Rank files, a folder of them, or a session's id")
    ],
    window: Annotated[
        str | None, typer.Option("--window", metavar="NAME", help="Which window of several; default: the first")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="PATH", help="A .json or .json.gz to write")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite what another command or run wrote")] = False,
    allow_partial: Annotated[
        bool, typer.Option("--allow-partial", help="Exit 0 with a rank missing, cut or repaired")
    ] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Refuse a rank missing, cut or repaired")] = False,
    sessions_dir: SessionsDir = None,
    format: Format = None,
    show_settings: ShowSettings = False,
) -> int:
    """Merge the traces of all ranks into one."""
    chosen = choose(NAMES, {"sessions_dir": sessions_dir, "format": format}, show=show_settings)
    from dsv4prof import api

    report = api.merge(
        inputs,
        sessions_dir=Path(chosen["sessions_dir"]),
        window=window,
        output=output,
        force=force,
        allow_partial=allow_partial,
        strict=strict,
    )
    return console.emit(report, chosen["format"])
