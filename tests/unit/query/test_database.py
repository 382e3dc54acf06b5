"""SQL over a merged trace: exact times, calls that wait, launches found, nothing of the machine reachable."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from dsv4prof.errors import MissingExtraError, UsageError
from dsv4prof.query.database import Database, open_database
from dsv4prof.query.schema import tables
from traces import BASE_NS, call, kernel, launched_rank, merged, note, op

duckdb = pytest.importorskip("duckdb")


@pytest.fixture
def database(tmp_path: Path) -> Database:
    copy = "Memcpy DtoH (Device -> {})"
    rank = [
        *launched_rank(),
        note("step[DECODE bs=3]", 50, 100, pid=1000, tid=1000),
        note("step[DECODE bs=3]", 200, 100, pid=1000, tid=1000),
        call("hipStreamSynchronize", 112, 5, 2),
        call("cudaMemcpyAsync", 120, 5, 3),
        kernel(copy.format("Pageable"), 121, 2, 3, cat="gpu_memcpy"),
        call("cudaMemcpyAsync", 130, 5, 4),
        kernel(copy.format("Pinned"), 131, 2, 4, cat="gpu_memcpy"),
        call("hipMemcpyWithStream", 140, 5, 5),
        op("quoted ' \" name", "150.001", "0.002"),
    ]
    with open_database(merged(tmp_path, rank, launched_rank())) as opened:
        yield opened


def test_every_table_is_as_described(database: Database) -> None:
    for table in tables():
        rows = database.query(
            f"SELECT column_name, data_type FROM information_schema.columns WHERE table_name = '{table.name}'"
            " ORDER BY ordinal_position"
        ).rows
        assert rows == [[column.name, column.type] for column in table.columns]
    shown = {row[0] for row in database.query("SHOW TABLES").rows}
    assert shown == {table.name for table in tables()}


def test_slices_are_exact(database: Database) -> None:
    rows = database.query("SELECT rank, name, ts_ns, dur_ns, category, args FROM slices WHERE name LIKE 'quoted%'").rows
    assert rows == [[0, "quoted ' \" name", BASE_NS + 150_001, 2, "cpu_op", None]]
    assert database.query("SELECT rank, count(*) FROM slices GROUP BY 1 ORDER BY 1").rows == [[0, 12], [1, 3]]
    places = database.query("SELECT DISTINCT pid, tid, process, track FROM slices WHERE rank = 1 ORDER BY 1").rows
    assert [place[:2] for place in places] == [["0", "7"], ["1000", "1000"]]
    assert "stream 7" in places[0][3]


def test_kernels_know_their_launch(database: Database) -> None:
    rows = database.query(
        "SELECT k.rank, k.name, k.device, k.stream, s.name FROM kernels k JOIN slices s"
        " ON s.rank = k.rank AND s.slice = k.launch WHERE k.category = 'kernel' ORDER BY 1"
    ).rows
    assert rows == [[rank, "gemm", "0", "7", "hipLaunchKernel"] for rank in (0, 1)]


def test_syncs_are_the_calls_that_wait(database: Database) -> None:
    rows = database.query("SELECT name, kind, copy, dur_ns FROM syncs ORDER BY ts_ns").rows
    assert rows == [
        ["hipStreamSynchronize", "stream", None, 5000],
        ["cudaMemcpyAsync", "copy", "Memcpy DtoH (Device -> Pageable)", 5000],
        ["hipMemcpyWithStream", "copy", None, 5000],
    ]


def test_steps_phases_and_ranks(database: Database) -> None:
    assert database.query("SELECT rank, step, kind, requests, accepted FROM steps ORDER BY step").rows == [
        [0, 0, "decode", 3, None],
        [0, 1, "decode", 3, None],
    ]
    phases = database.query("SELECT phase, dur_ns, label FROM phases").rows
    assert phases == [["decode", 100_000, "step[DECODE bs=3]"]] * 2
    rows = database.query("SELECT rank, slices, complete, offset_ns FROM ranks ORDER BY rank").rows
    assert rows == [[0, 12, True, 0], [1, 3, True, 0]]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM read_csv('/etc/passwd')",
        "COPY slices TO '/tmp/out.csv'",
        "ATTACH '/tmp/x.db'",
        "SET enable_external_access = true",
        "INSTALL httpfs",
        "SELECT nothing FROM slices",
        "SELEC",
        "SELECT * FROM secret",
    ],
)
def test_bad_and_outward_statements_are_refused(database: Database, sql: str) -> None:
    secret = {"a": [1]}  # noqa: F841 - a Python variable that a statement must not see
    with pytest.raises(UsageError, match="the query failed: "):
        database.query(sql)


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(MissingExtraError, match="duckdb"):
        open_database(merged(tmp_path, launched_rank()))
