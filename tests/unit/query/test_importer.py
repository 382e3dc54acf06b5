"""The importer's process: exact answers, clear refusals, nothing left behind."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from dsv4prof.errors import InputError, MissingExtraError, UsageError
from dsv4prof.query import importer as module
from dsv4prof.query.checking import check_with_importer, disagreements
from dsv4prof.query.importer import Importer, importer_available, importer_version
from dsv4prof.trace.check import check_file
from traces import document, flow, kernel, launched_rank, op, write

needs_importer = pytest.mark.skipif(not importer_available(), reason="needs node and viztracer")


@needs_importer
def test_one_import_answers_many_queries_exactly(tmp_path: Path) -> None:
    with Importer(write(tmp_path / "t.json.gz", document(launched_rank()))) as importer:
        sql = "SELECT 9007199254740993 AS big, -1 AS small, 0.5 AS half, NULL AS none, x'00ff' AS blob"
        answer = importer.query(sql)
        assert answer.columns == ["big", "small", "half", "none", "blob"]
        assert answer.rows == [[2**53 + 1, -1, 0.5, None, b"\x00\xff"]]
        assert importer.query("SELECT name FROM slice WHERE name LIKE 'a%'").rows == [["aten::mm"]]
        assert importer.query("SELECT name FROM slice WHERE 0").rows == []
        with pytest.raises(UsageError, match="no such table: absent_table"):
            importer.query("SELECT * FROM absent_table")
        assert importer.counts().slices == 3
        assert importer.counts().flows == 1
        assert importer.errors() == {}


@needs_importer
def test_many_rows_come_whole(tmp_path: Path) -> None:
    events = [op(f"op \u20ac {n}", n, 0.5) for n in range(30_000)]
    # The importer shows an escape in JSON as it is written, so the name must be real text.
    data = json.dumps(document(events), ensure_ascii=False).encode()
    with Importer(write(tmp_path / "t.json", data)) as importer:
        rows = importer.query("SELECT name, dur FROM slice ORDER BY ts").rows
    assert len(rows) == 30_000
    assert rows[-1] == ["op \u20ac 29999", 500]


@needs_importer
def test_closing_ends_the_process(tmp_path: Path) -> None:
    importer = Importer(write(tmp_path / "t.json", document([op("a", 0, 1)])))
    importer.close()
    assert importer._process.returncode is not None
    with pytest.raises(InputError, match="was closed before a query"):
        importer.query("SELECT 1")


@needs_importer
def test_what_cannot_be_imported_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="refuses"):
        Importer(write(tmp_path / "t.json", b"\x00" * 100))
    with pytest.raises(InputError, match="no such file"):
        Importer(tmp_path / "absent.json")


@needs_importer
def test_a_time_limit_ends_it(tmp_path: Path) -> None:
    path = write(tmp_path / "t.json", document([op("a", 0, 1)]))
    with pytest.raises(InputError, match="did not finish import"):
        Importer(path, timeout_s=0.001)
    with Importer(path) as importer:
        importer._timeout_s = 0.2
        with pytest.raises(InputError, match="did not finish a query"):
            importer.query(
                "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < 1000000000)"
                " SELECT count(*) FROM t"
            )


def test_what_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.util, "find_spec", lambda _: None)
    with pytest.raises(MissingExtraError, match="viztracer"):
        Importer(tmp_path / "t.json")
    assert not importer_available()


@needs_importer
def test_node_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(UsageError, match="node 18"):
        Importer(tmp_path / "t.json")
    assert not importer_available()


@needs_importer
def test_the_version_is_that_of_perfetto() -> None:
    assert importer_version().startswith("v")


@needs_importer
def test_a_check_counts_what_the_importer_drops(tmp_path: Path) -> None:
    events = [kernel("a", 0, 10), kernel("b", 5, 10), flow("f", 1, 0, pid=0, tid=7), op("c", 0, 1)]
    path = write(tmp_path / "t.json", document(events))
    found = check_with_importer(path)
    assert not found.ok
    assert found.errors["slice_drop_overlapping_complete_event"] == 1
    assert found.remarks["flow_end_without_start"] == 1
    assert found.counts.slices == 2
    predicted = check_file(path)
    assert disagreements(predicted, found) == []
    more = check_with_importer(write(tmp_path / "u.json", document(launched_rank())))
    assert more.ok
    assert disagreements(predicted, more) == [
        "overlapping: predicted 1, the importer counts 0",
        "flow_ends_without_start: predicted 1, the importer counts 0",
    ]


FAULTY = ["20-*/rank0.json", "20-*/rank1_clash.json", "24-*/overlap.json", "26-*/strings.json"]


@needs_importer
@pytest.mark.parametrize("pattern", FAULTY)
def test_prediction_and_importer_agree_on_faulty_inputs(shared: Path, pattern: str) -> None:
    (path,) = (shared / "cases").glob(pattern)
    predicted, found = check_file(path), check_with_importer(path)
    assert disagreements(predicted, found) == []
    assert found.counts.slices == predicted.slices_out
