"""A merged trace as tables of an in-memory DuckDB database, for questions in SQL."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from threading import Thread
from typing import TYPE_CHECKING, Any

import numpy as np

from dsv4prof.errors import MissingExtraError, UsageError
from dsv4prof.model.event import Slice
from dsv4prof.model.trace import MergedRank, MergedTrace, StepSpan
from dsv4prof.query.importer import Answer
from dsv4prof.query.schema import TABLES, create
from dsv4prof.trace.steps import find_steps
from dsv4prof.trace.vendor import ASYNC_COPY, BLOCKING_COPY, GPU_CATEGORIES, RUNTIME_CATEGORIES, SYNCHRONIZE

if TYPE_CHECKING:
    import duckdb

_INTERRUPT_S = 10
_HINT = "see the tables and columns with --schema"
_SLICES = """
INSERT INTO slices
SELECT {rank}, s.slice, s.ts_ns, s.dur_ns, n.text, c.text, t.pid, t.tid, t.process, t.track, TRY_CAST(s.args AS JSON)
FROM raw_slices s JOIN raw_names n ON n.id = s.name JOIN raw_categories c ON c.id = s.category
JOIN raw_tracks t ON t.id = s.track
ORDER BY s.slice
"""
_KERNELS = """
INSERT INTO kernels
WITH ops AS (
  SELECT *, TRY_CAST(args->>'correlation' AS BIGINT) AS correlation FROM slices WHERE category IN ({gpu})
), calls AS (
  SELECT rank, TRY_CAST(args->>'correlation' AS BIGINT) AS correlation, min(slice) AS slice
  FROM slices WHERE category IN ({runtime}) GROUP BY ALL
)
SELECT ops.rank, ops.slice, ts_ns, dur_ns, name, category, pid, tid, ops.correlation, calls.slice, args
FROM ops LEFT JOIN calls ON ops.rank = calls.rank AND ops.correlation = calls.correlation AND ops.correlation > 0
ORDER BY ops.rank, ops.slice
"""
# An asynchronous copy to or from pageable memory waits like a blocking one.
_SYNCS = """
INSERT INTO syncs
WITH calls AS (
  SELECT rank, slice, ts_ns, dur_ns, name, waits.kind, waits.always,
    TRY_CAST(args->>'correlation' AS BIGINT) AS correlation
  FROM slices JOIN waits ON slices.name = waits.call WHERE category IN ({runtime})
), copies AS (
  SELECT launch, rank, any_value(name) AS name FROM kernels WHERE category = 'gpu_memcpy' GROUP BY ALL
)
SELECT calls.rank, slice, ts_ns, dur_ns, calls.name, kind, copies.name, correlation
FROM calls LEFT JOIN copies ON copies.rank = calls.rank AND copies.launch = calls.slice
WHERE always OR contains(copies.name, 'Pageable')
ORDER BY calls.rank, slice
"""


class Database:
    """The tables of `schema.TABLES`, closed to files and the network; use as a context manager."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, errors: type[Exception]) -> None:
        self._connection = connection
        self._errors = errors

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def query(self, sql: str, *, timeout_s: float = 600) -> Answer:
        """Columns and rows of one statement. Raises UsageError with DuckDB's words when it fails or takes too long."""
        answers: list[Answer] = []
        faults: list[Exception] = []

        def work() -> None:
            try:
                answers.append(self._answer(sql))
            except (UsageError, self._errors) as error:
                faults.append(error)

        # DuckDB works on without looking at signals; on a thread of its own it can be interrupted.
        worker = Thread(target=work, daemon=True)
        worker.start()
        try:
            worker.join(timeout_s)
        finally:
            if worker.is_alive():
                self._connection.interrupt()
                worker.join(_INTERRUPT_S)
        if worker.is_alive() or (faults and "interrupt" in str(faults[0]).lower()):
            raise UsageError(f"the query did not end within {timeout_s:g} s", hint="ask for less, or LIMIT it")
        if faults:
            raise UsageError(f"the query failed: {str(faults[0]).strip()}", hint=_HINT) from faults[0]
        return answers[0]

    def _answer(self, sql: str) -> Answer:
        result = self._connection.execute(sql)
        if result is None or result.description is None:
            raise UsageError("the statement is empty or gives no rows", hint=_HINT)
        columns = [column[0] for column in result.description]
        return Answer(columns, [list(row) for row in result.fetchall()] if columns else [])


def open_database(merged: MergedTrace) -> Database:
    """Load every table. Raises MissingExtraError without the package duckdb.

    A million slices take about two seconds and half a GB.
    """
    try:
        import duckdb
    except ImportError:
        raise MissingExtraError("duckdb", "sql", purpose="SQL over a merged trace") from None
    connection = duckdb.connect(":memory:", config={"autoinstall_known_extensions": "false"})
    for table in TABLES:
        connection.execute(create(table))
    for rank in merged.ranks:
        _insert_slices(connection, rank)
    _insert_steps(connection, merged)
    _insert_ranks(connection, merged)
    names = {"gpu": _quoted(GPU_CATEGORIES), "runtime": _quoted(RUNTIME_CATEGORIES)}
    connection.execute(_KERNELS.format(**names))
    connection.execute("CREATE TEMP TABLE waits (call VARCHAR, kind VARCHAR, always BOOLEAN)")
    _insert(connection, "waits", list(_waits()))
    connection.execute(_SYNCS.format(**names))
    connection.execute("DROP TABLE waits")
    _close(connection)
    return Database(connection, duckdb.Error)


def _close(connection: duckdb.DuckDBPyConnection) -> None:
    """No file, no network, no Python variable can be reached from a statement after this."""
    # Its scratch folder is one that statements could reach.
    connection.execute("SET temp_directory = ''")
    known = {row[0] for row in connection.execute("SELECT name FROM duckdb_settings()").fetchall()}
    for setting in ("python_enable_replacements", "enable_external_access"):
        if setting in known:
            connection.execute(f"SET {setting} = false")
    connection.execute("SET lock_configuration = true")


def _insert_slices(connection: duckdb.DuckDBPyConnection, rank: MergedRank) -> None:
    slices = rank.trace.slices
    if not slices:
        return
    names, name = _coded(event.name for event in slices)
    categories, category = _coded(event.category for event in slices)
    tracks, track = _coded(event.track for event in slices)
    rows = {row.source: row for row in rank.rows if row.lane == 1}
    count = len(slices)
    args = np.empty(count, object)
    args[:] = [None if event.args is None else bytes(event.args).decode(errors="replace") for event in slices]
    _register(
        connection,
        "raw_slices",
        {
            "slice": np.arange(count, dtype=np.int64),
            "ts_ns": _column(slices, "start_ns"),
            "dur_ns": _column(slices, "dur_ns"),
            "name": name,
            "category": category,
            "track": track,
            "args": args,
        },
    )
    _register(connection, "raw_names", {"id": np.arange(len(names)), "text": _texts(names)})
    _register(connection, "raw_categories", {"id": np.arange(len(categories)), "text": _texts(categories)})
    _register(
        connection,
        "raw_tracks",
        {
            "id": np.arange(len(tracks)),
            "pid": _texts([str(each.pid) for each in tracks]),
            "tid": _texts([str(each.tid) for each in tracks]),
            "process": _texts([rows[each].process_name if each in rows else None for each in tracks]),
            "track": _texts([rows[each].thread_name if each in rows else None for each in tracks]),
        },
    )
    connection.execute(_SLICES.format(rank=rank.trace.coordinates.rank))
    for view in ("raw_slices", "raw_names", "raw_categories", "raw_tracks"):
        connection.unregister(view)


def _insert_steps(connection: duckdb.DuckDBPyConnection, merged: MergedTrace) -> None:
    steps: list[StepSpan] = []
    for rank in merged.ranks:
        steps += find_steps(rank.trace.slices, rank.trace.coordinates.rank)
    _insert(
        connection,
        "steps",
        [(s.rank, s.index, s.start_ns, s.end_ns - s.start_ns, s.kind, s.requests, s.accepted) for s in steps],
    )
    _insert(
        connection,
        "phases",
        [
            (s.rank, s.index, str(p.phase.value), p.start_ns, p.end_ns - p.start_ns, p.captured, p.label)
            for s in steps
            for p in s.phases
        ],
    )


def _insert_ranks(connection: duckdb.DuckDBPyConnection, merged: MergedTrace) -> None:
    clocks = {clock.rank: clock for clock in merged.clocks}
    rows = []
    for rank in merged.ranks:
        who, trace = rank.trace.coordinates, rank.trace
        clock = clocks.get(who.rank)
        fit = (None,) * 4 if clock is None else (clock.offset_ns, clock.drift_ppm, clock.residual_ns, clock.matches)
        place = (who.host, who.tp, who.dp, who.pp, who.ep)
        rows.append((who.rank, trace.source, *place, len(trace.slices), trace.complete, *fit))
    _insert(connection, "ranks", rows)


def _insert(connection: duckdb.DuckDBPyConnection, table: str, rows: Sequence[tuple[Any, ...]]) -> None:
    """Few rows, by value."""
    if rows:
        connection.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(rows[0]))})", rows)


def _waits() -> Iterable[tuple[str, str, bool]]:
    for call, kind in SYNCHRONIZE.items():
        yield call, kind, True
    for call in sorted(BLOCKING_COPY):
        yield call, "copy", True
    for call in sorted(ASYNC_COPY):
        yield call, "copy", False


def _register(connection: duckdb.DuckDBPyConnection, name: str, columns: dict[str, np.ndarray]) -> None:
    connection.register(name, columns)


def _column(slices: list[Slice], field: str) -> np.ndarray:
    return np.fromiter((getattr(event, field) for event in slices), np.int64, len(slices))


def _coded(values: Iterable[Any]) -> tuple[list[Any], np.ndarray]:
    """(distinct values, the place of each value among them)."""
    places: dict[Any, int] = {}
    codes = np.array([places.setdefault(value, len(places)) for value in values], np.int64)
    return list(places), codes


def _texts(values: Sequence[str | None]) -> np.ndarray:
    column = np.empty(len(values), object)
    column[:] = values
    return column


def _quoted(words: Iterable[str]) -> str:
    return ", ".join(f"'{word}'" for word in sorted(words))
