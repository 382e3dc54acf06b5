"""The host's lead over the device round a wait, and what a wait takes from it."""

from __future__ import annotations

from pathlib import Path

from dsv4prof.model.finding import Finding
from dsv4prof.sync.trace import host_reads
from traces import Event, call, kernel, merged, note, x

STEP = "dsv4.step#{} kind=decode requests=1 rows=1"


def _launched(at: float, work: float, number: int, dur: float = 30) -> list[Event]:
    return [call("cudaLaunchKernel", at, 5, number), kernel("gemm", work, dur, number)]


def _one(tmp_path: Path, *events: Event) -> Finding:
    (finding,) = host_reads(merged(tmp_path, list(events)), ())
    return finding


def test_a_wait_takes_the_lead_that_the_host_had(tmp_path: Path) -> None:
    finding = _one(
        tmp_path,
        *_launched(0, 100, 1, 100),
        *_launched(10, 200, 2, 200),
        call("cudaStreamSynchronize", 20, 385, 3),
        *_launched(410, 420, 4),
    )
    evidence = finding.evidence
    assert evidence["run_ahead_before_ns"] == 200_000 - 15_000
    assert evidence["run_ahead_after_ns"] == 420_000 - 415_000
    assert evidence["run_ahead_lost_ns"] == 180_000


def test_a_wait_for_an_idle_device_loses_nothing(tmp_path: Path) -> None:
    finding = _one(tmp_path, *_launched(0, 10, 1, 5), call("cudaStreamSynchronize", 100, 3, 2), *_launched(110, 200, 3))
    assert finding.evidence["run_ahead_lost_ns"] == 0


def test_without_a_launch_on_both_sides_the_lead_is_unknown(tmp_path: Path) -> None:
    finding = _one(tmp_path, *_launched(0, 10, 1), call("cudaStreamSynchronize", 20, 30, 2))
    assert finding.evidence["run_ahead_lost_ns"] is None
    assert finding.evidence["run_ahead_lost_per_step_ns"] is None


def test_a_copy_that_waits_by_itself_is_no_lead(tmp_path: Path) -> None:
    """On ROCm the copy is the wait: what counts is the launch before it."""
    finding = _one(
        tmp_path,
        *_launched(0, 300, 1, 100),
        call("hipMemcpyWithStream", 50, 352, 2),
        x("Memcpy DtoH (Device -> Host)", "gpu_memcpy", 400, 1, pid=0, tid=7, correlation=2),
        *_launched(410, 418, 3),
    )
    assert finding.evidence["run_ahead_before_ns"] == 295_000
    assert finding.evidence["run_ahead_lost_ns"] == 295_000 - 3_000


def test_costs_are_told_a_step_a_token_and_a_rank(tmp_path: Path) -> None:
    def rank(blocked: float) -> list[Event]:
        events: list[Event] = []
        for n in range(2):
            at = n * 1000
            events += [
                note(STEP.format(n), at, 900),
                note("dsv4.accepted requests=1 tokens=4", at + 800, 1),
                *_launched(at + 10, at + 40, 10 * n + 1, 50),
                call("cudaStreamSynchronize", at + 60, blocked, 10 * n + 2),
                *_launched(at + 500, at + 510, 10 * n + 3),
            ]
        return events

    (finding,) = host_reads(merged(tmp_path, rank(100), rank(300)), ())
    evidence = finding.evidence
    assert finding.cost_ns == 200_000
    assert evidence["blocked_ns"] == 800_000
    assert {number: each["blocked_ns"] for number, each in evidence["by_rank"].items()} == {"0": 200_000, "1": 600_000}
    assert evidence["blocked_per_token_ns"] == 800_000 / 16
