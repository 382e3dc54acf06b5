"""`dsv4prof merge`: rank files -> one trace that Perfetto opens without dropping anything."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dsv4prof.cli import console
from dsv4prof.cli.help import add
from dsv4prof.cli.options import Format, SessionsDir, ShowSettings, choose

NAMES = ("sessions_dir", "format")
# How long a file that is seen to grow is waited for.
_PATIENCE_S = 60.0


def register(app: typer.Typer) -> None:
    add(app, "merge", merge, "dsv4prof merge latest", "dsv4prof merge latest --strict -o all.json.gz")


def merge(
    inputs: Annotated[
        list[str], typer.Argument(metavar="INPUTS", help="Rank files or URLs, a folder of them, or a session's id")
    ],
    window: Annotated[
        str | None,
        typer.Option("--window", metavar="NAME|A:B", help="A session's window, or a time: 10ms:50ms, 10%:11%"),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="PATH", help="A .json, .pftrace (both also .gz) or .tar")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite what another command or run wrote")] = False,
    allow_partial: Annotated[
        bool, typer.Option("--allow-partial", help="Exit 0 with a rank missing, cut or repaired")
    ] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Refuse a rank missing, cut or repaired")] = False,
    align: Annotated[
        str, typer.Option("--align", metavar="HOW", help="Clocks by base, collectives, none or [auto]")
    ] = "auto",
    ranks: Annotated[str | None, typer.Option("--ranks", metavar="LIST", help="Only these ranks: 0,2,5-7")] = None,
    steps: Annotated[str | None, typer.Option("--steps", metavar="N-M", help="Only these steps: 10-12")] = None,
    categories: Annotated[
        str | None, typer.Option("--categories", metavar="LIST", help="Only these categories: kernel,cpu_op")
    ] = None,
    no_python: Annotated[bool, typer.Option("--no-python", help="Leave the python stacks out")] = False,
    arrows: Annotated[
        bool, typer.Option("--collective-arrows", help="Arrows between the same collective on all ranks")
    ] = False,
    rank_regex: Annotated[
        str | None, typer.Option("--rank-regex", metavar="REGEX", help="Where a file's name has the rank: 'w-(\\d+)'")
    ] = None,
    wait: Annotated[
        float | None,
        typer.Option("--wait", metavar="SECONDS", help="Wait so long for ranks missing or unfinished"),
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Import the result as Perfetto does, and compare")] = False,
    jobs: Annotated[
        int | None, typer.Option("-j", "--jobs", metavar="N", help="Processes; default: by the size of the input")
    ] = None,
    sessions_dir: SessionsDir = None,
    format: Format = None,
    show_settings: ShowSettings = False,
) -> int:
    """Merge the traces of all ranks into one."""
    chosen = choose(NAMES, {"sessions_dir": sessions_dir, "format": format}, show=show_settings)
    from dsv4prof import api

    name, narrowing = api.narrow(window, ranks=ranks, steps=steps, categories=categories, python=not no_python)
    with console.terminated_as_interrupted():
        report = api.merge(
            inputs,
            sessions_dir=Path(chosen["sessions_dir"]),
            window=name,
            output=output,
            force=force,
            allow_partial=allow_partial,
            strict=strict,
            check=check,
            align=align,
            narrowing=narrowing,
            arrows=arrows,
            rank_regex=rank_regex,
            jobs=jobs,
            patience=api.Patience(_PATIENCE_S if wait is None else wait, asked=wait is not None),
            progress=console.note,
        )
    return console.emit(report, chosen["format"])
