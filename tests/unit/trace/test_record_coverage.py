"""Launches without a device record are told: scattered, at the start, captured, or none."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsv4prof.analysis.quality import analyze_quality
from dsv4prof.trace.index import TraceIndex
from dsv4prof.trace.load import load_rank
from dsv4prof.trace.merge import merge
from dsv4prof.trace.record_coverage import coverage_of
from traces import Event, call, kernel, merged


def _launches(numbers: range, recorded: set[int], name: str = "hipLaunchKernel") -> list[Event]:
    events: list[Event] = []
    for number in numbers:
        events.append(call(name, 10 * number, 2, number))
        if number in recorded:
            events.append(kernel("gemm", 10 * number + 3, 4, number))
    return events


def _index(tmp_path: Path, events: list[Event]) -> TraceIndex:
    return TraceIndex(merged(tmp_path, events))


def test_scattered_losses_are_counted(tmp_path: Path) -> None:
    (rank,) = _index(tmp_path, _launches(range(1, 101), set(range(1, 101, 2)))).ranks
    told = coverage_of(rank)
    assert (told.launches, told.recorded, told.complete) == (100, 50, False)
    assert "warm-up" not in told.text


def test_a_loss_at_the_start_asks_for_a_warm_up(tmp_path: Path) -> None:
    (rank,) = _index(tmp_path, _launches(range(1, 7), {4, 5, 6})).ranks
    assert "the first 3 that have none: a warm-up step" in coverage_of(rank).text


@pytest.mark.parametrize(("lost", "told"), [(1, 0), (2, 1)])
def test_one_in_a_hundred_is_no_finding(tmp_path: Path, lost: int, told: int) -> None:
    index = _index(tmp_path, _launches(range(1, 101), set(range(1, 101 - lost))))
    assert len(analyze_quality(index).findings) == told


def test_what_is_captured_into_a_graph_has_no_record_and_needs_none(tmp_path: Path) -> None:
    events = [
        call("hipStreamBeginCapture", 5, 1),
        *_launches(range(1, 50), set()),
        call("hipStreamEndCapture", 600, 1),
        call("hipLaunchKernel", 700, 2, 99),
        kernel("gemm", 703, 4, 99),
    ]
    (rank,) = _index(tmp_path, events).ranks
    assert (coverage_of(rank).launches, coverage_of(rank).complete) == (1, True)


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ("29-rocm-partial-kernel-records/partial", "40 of 100 launches (40 %)"),
        ("30-zero-time-kernels-at-session-start/head_missing", "the first 3 that have none"),
        ("34-graph-replay-fakes-idle/replay_thin", "10 of 50 launches (20 %)"),
    ],
)
def test_inputs_of_public_reports(shared: Path, case: str, said: str) -> None:
    trace = merge([load_rank(shared / "cases" / f"{case}.json")])
    (found,) = analyze_quality(TraceIndex(trace)).findings
    assert found.code == "DSV403"
    assert said in found.message
