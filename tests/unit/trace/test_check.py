"""The prediction of what an importer drops: each fault by itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dsv4prof.errors import InputError
from dsv4prof.trace.check import CheckResult, check_file
from traces import document, flow, kernel, op, write, x


def _check(tmp_path: Path, *events: dict[str, Any]) -> CheckResult:
    return check_file(write(tmp_path / "t.json.gz", document(list(events))))


def test_a_clean_file_is_ok(tmp_path: Path) -> None:
    ops = [op("a", 0, 10), op("b", 0, 10), op("c", 2, 3), op("longer", 0, 30)]
    result = _check(tmp_path, *ops, flow("s", 1, 0), flow("f", 1, 5))
    assert result.ok
    assert (result.slices_in, result.slices_out) == (4, 4)


@pytest.mark.parametrize(
    ("events", "field"),
    [
        ([kernel("a", 0, 10), kernel("b", 5, 10)], "overlapping"),
        ([{"ph": "X", "name": "a", "pid": 1, "tid": 1, "ts": 5}], "without_duration"),
        ([x("a", "cpu_op", -1, 1)], "negative_times"),
        ([flow("s", 1, 0), flow("s", 1, 5), flow("f", 1, 6)], "duplicate_flows"),
        ([flow("s", "0x1", 0)], "invalid_flow_ids"),
        ([flow("f", 1, 0)], "flow_ends_without_start"),
        ([op("a", 0, 1, pid="Spans")], "string_pids"),
        ([op("a", 0, 1, pid=-1)], "negative_pids"),
        ([op("a", 0, 1, tid=-5)], "negative_tids"),
        ([{"ph": "X", "name": {}}], "malformed"),
    ],
)
def test_each_fault_is_counted_once_and_alone(tmp_path: Path, events: list[dict[str, Any]], field: str) -> None:
    result = _check(tmp_path, *events)
    assert not result.ok
    faults = {
        name: getattr(result, name) for name in CheckResult.__struct_fields__ if name not in ("slices_in", "slices_out")
    }
    assert {name: count for name, count in faults.items() if count} == {field: 1}


def test_negative_threads_fall_on_the_main_thread(tmp_path: Path) -> None:
    assert _check(tmp_path, op("a", 0, 10), op("b", 5, 10, tid=-5)).overlapping == 1


def test_a_dropped_slice_encloses_nothing(tmp_path: Path) -> None:
    result = _check(tmp_path, op("a", 0, 10), op("crosses", 5, 100), op("c", 12, 5), op("d", 14, 5))
    assert (result.overlapping, result.slices_out) == (2, 2)


def test_decimals_at_epoch_scale_are_lost_as_in_the_importer(tmp_path: Path) -> None:
    def row(base: int) -> list[dict[str, Any]]:
        return [x("a", "cpu_op", f"{base + n * 11 // 10}.{n * 11 % 10}", "1.1") for n in range(50)]

    assert _check(tmp_path, *row(0)).ok
    assert _check(tmp_path, *row(1_790_857_026_123_456)).overlapping > 10


def test_what_is_no_trace_is_refused(tmp_path: Path) -> None:
    for content in (b"{}", b"hello", b'{"traceEvents": [{"ph": "X"}'):
        with pytest.raises(InputError):
            check_file(write(tmp_path / "t.json", content))
