"""The tables of the database, with what each column means: printed for a user, and created from the same lines."""

from __future__ import annotations

import msgspec


class Column(msgspec.Struct, frozen=True):
    """A column's name, DuckDB type and meaning."""

    name: str
    type: str
    meaning: str


class Table(msgspec.Struct, frozen=True):
    """A table or view."""

    name: str
    meaning: str
    columns: tuple[Column, ...]


_RANK = Column("rank", "INTEGER", "global rank")
_PLACE = (
    Column("ts_ns", "BIGINT", "begin, absolute ns on the common clock"),
    Column("dur_ns", "BIGINT", "duration in ns"),
    Column("name", "VARCHAR", "name of the event"),
)
_SLICE = Column("slice", "BIGINT", "place in the rank's list of slices; with rank it identifies the slice")

TABLES = (
    Table(
        "slices",
        "every complete event of every rank",
        (
            _RANK,
            _SLICE,
            *_PLACE,
            Column("category", "VARCHAR", "as the profiler says: kernel, cpu_op, cuda_runtime, python_function, ..."),
            Column("pid", "VARCHAR", "process or device of the rank's file"),
            Column("tid", "VARCHAR", "thread or stream of the rank's file"),
            Column("process", "VARCHAR", "name of the process or device, with the rank"),
            Column("track", "VARCHAR", "name of the thread or stream"),
            Column("args", "JSON", "arguments: args->>'correlation'"),
        ),
    ),
    Table(
        "kernels",
        "GPU operations: kernels, copies, fills",
        (
            _RANK,
            _SLICE,
            *_PLACE,
            Column("category", "VARCHAR", "kernel, gpu_memcpy or gpu_memset"),
            Column("device", "VARCHAR", "device of the rank's file"),
            Column("stream", "VARCHAR", "stream of the rank's file"),
            Column("correlation", "BIGINT", "ties it to the runtime call that launched it, inside the rank"),
            Column("launch", "BIGINT", "the slice of that call; NULL when it is not in the file"),
            Column("args", "JSON", "arguments"),
        ),
    ),
    Table(
        "syncs",
        "runtime calls that wait for the GPU",
        (
            _RANK,
            _SLICE,
            *_PLACE,
            Column("kind", "VARCHAR", "what it waits for: stream, device, event or copy"),
            Column("copy", "VARCHAR", "name of the GPU copy that it starts; NULL for others"),
            Column("correlation", "BIGINT", "ties it to its GPU operation"),
        ),
    ),
    Table(
        "steps",
        "engine steps",
        (
            _RANK,
            Column("step", "BIGINT", "number of the step"),
            Column("ts_ns", "BIGINT", "begin, absolute ns on the common clock"),
            Column("dur_ns", "BIGINT", "duration in ns"),
            Column("kind", "VARCHAR", "prefill or decode; empty when the trace does not say"),
            Column("requests", "BIGINT", "requests in the batch, 0 when the trace does not say"),
            Column("accepted", "BIGINT", "output tokens of its verify; NULL when the trace does not say"),
        ),
    ),
    Table(
        "phases",
        "forwards and other phases inside the steps",
        (
            _RANK,
            Column("step", "BIGINT", "number of the step"),
            Column("phase", "VARCHAR", "prefill, decode, draft, target_verify, ..."),
            Column("ts_ns", "BIGINT", "begin, absolute ns on the common clock"),
            Column("dur_ns", "BIGINT", "duration in ns"),
            Column("captured", "BOOLEAN", "whether it ran as a graph; NULL when the trace does not say"),
            Column("label", "VARCHAR", "the name in the trace"),
        ),
    ),
    Table(
        "ranks",
        "one row a rank: who it is, what was read, how its clock was mapped",
        (
            _RANK,
            Column("source", "VARCHAR", "the rank's file"),
            Column("host", "VARCHAR", "host, when known"),
            Column("tp", "INTEGER", "tensor parallel rank"),
            Column("dp", "INTEGER", "data parallel rank"),
            Column("pp", "INTEGER", "pipeline parallel rank"),
            Column("ep", "INTEGER", "expert parallel rank"),
            Column("slices", "BIGINT", "slices read"),
            Column("complete", "BOOLEAN", "false when the file ends early"),
            Column("offset_ns", "BIGINT", "clock offset taken off, in ns"),
            Column("drift_ppm", "DOUBLE", "clock drift taken off; NULL where none was looked for"),
            Column("residual_ns", "BIGINT", "what remains after the alignment; NULL where nothing could be matched"),
            Column("matches", "BIGINT", "collectives that the clock was fitted on"),
        ),
    ),
)


def tables() -> tuple[Table, ...]:
    """All tables, for a listing; needs no database."""
    return TABLES


def create(table: Table) -> str:
    """The statement that makes an empty table."""
    columns = ", ".join(f'"{column.name}" {column.type}' for column in table.columns)
    return f'CREATE TABLE "{table.name}" ({columns})'
