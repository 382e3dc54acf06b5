"""Time of each phase a step: sums that add up, percentiles, idle."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from dsv4prof.analysis.phases import analyze_phases, percentile, step_times
from dsv4prof.analysis.result import Analysis
from dsv4prof.model.phase import Phase
from dsv4prof.model.trace import PhaseSpan, StepSpan
from dsv4prof.trace.index import TraceIndex
from traces import Event, merged, note, op


def _decode(n: int, at: float, verify: float = 40) -> list[Event]:
    return [
        note(f"dsv4.step#{n} kind=decode requests=1 rows=4", at, 90),
        note("dsv4.phase draft requests=1 rows=3", at + 5, 20),
        note("dsv4.phase target_verify requests=1 rows=4", at + 30, verify),
    ]


def _analyze(tmp_path: Path, *ranks: list[Event]) -> Analysis:
    return analyze_phases(TraceIndex(merged(tmp_path, *ranks)))


def _rows(found: Analysis, key: str) -> dict[str, dict[str, object]]:
    section = next(section for section in found.sections if section.key == key)
    return {str(row["phase"]): dict(row) for row in section.rows}


def test_phases_and_idle_add_up_to_the_step_with_its_gap(tmp_path: Path) -> None:
    rows = _rows(_analyze(tmp_path, [*_decode(0, 0), *_decode(1, 100), *_decode(2, 200)]), "phases.decode")
    assert rows["draft"]["mean_ns"] == 20_000
    assert rows["target_verify"]["mean_ns"] == 40_000
    assert rows["step"]["mean_ns"] == round((100_000 + 100_000 + 90_000) / 3)
    total = sum(int(str(rows[name]["mean_ns"])) for name in ("draft", "target_verify", "idle"))
    assert abs(total - int(str(rows["step"]["mean_ns"]))) <= 1
    assert rows["idle"]["p99_ns"] == 40_000


def test_means_are_over_ranks_and_percentiles_over_steps_with_the_phase(tmp_path: Path) -> None:
    rows = _rows(_analyze(tmp_path, _decode(0, 0, verify=10), _decode(0, 0, verify=50)), "phases.decode")
    assert (rows["target_verify"]["mean_ns"], rows["target_verify"]["p50_ns"]) == (30_000, 10_000)
    assert rows["target_verify"]["p99_ns"] == 50_000
    assert rows["step"]["steps"] == 2


def test_prefill_and_decode_have_tables_of_their_own_and_decode_leads(tmp_path: Path) -> None:
    prefill = [note("dsv4.step#0 kind=prefill requests=1 rows=64", 0, 50), note("dsv4.phase prefill requests=1", 1, 45)]
    found = _analyze(tmp_path, [*prefill, *_decode(1, 60)])
    assert [section.key for section in found.sections] == ["phases.decode", "phases.prefill"]
    metrics = {metric.key: metric.value for metric in found.metrics}
    assert metrics["step.mean"] == 90_000
    assert "phase.prefill" not in metrics
    assert _rows(found, "phases.prefill")["step"]["mean_ns"] == 60_000


def test_a_gap_in_the_numbers_of_steps_is_nobodys_time(tmp_path: Path) -> None:
    rows = _rows(_analyze(tmp_path, [*_decode(0, 0), *_decode(7, 5000)]), "phases.decode")
    assert rows["step"]["p99_ns"] == 90_000


def test_without_phases_nothing_is_called_idle(tmp_path: Path) -> None:
    found = _analyze(tmp_path, [note("ProfilerStep#1", 0, 50), note("ProfilerStep#2", 50, 50)])
    assert list(_rows(found, "phases.step")) == ["step"]
    assert {metric.key for metric in found.metrics} == {"step.mean", "step.p50", "step.p99"}


def test_without_steps_it_says_so(tmp_path: Path) -> None:
    found = _analyze(tmp_path, [op("aten::mm", 0, 5)])
    assert found.sections == []
    assert "no steps" in found.notes[0]


def test_nested_phases_are_counted_once() -> None:
    outer = PhaseSpan(Phase.TARGET_VERIFY, 10, 60)
    inner = PhaseSpan(Phase.DRAFT, 20, 40)
    (times,) = step_times([StepSpan(0, 0, 0, 100, (outer, inner))])
    assert times.phases == {Phase.TARGET_VERIFY: 50, Phase.IDLE: 50}


@given(st.lists(st.integers(0, 1000), min_size=1), st.sampled_from([0.5, 0.9, 0.99]))
def test_percentile_is_the_smallest_value_that_enough_do_not_exceed(values: list[int], share: float) -> None:
    found = percentile(values, share)
    assert sum(value <= found for value in values) >= share * len(values)
    assert sum(value < found for value in values) < share * len(values)


def test_a_mean_that_few_steps_decide_says_so(tmp_path: Path) -> None:
    def steps(*durations: float) -> list[Event]:
        return [note(f"ProfilerStep#{2 * n}", 10_000 * n, dur) for n, dur in enumerate(durations)]

    found = analyze_phases(TraceIndex(merged(tmp_path, steps(9000, 200, 200, 200, 200))))
    assert found.notes == ["few long steps decide the mean: p50 0.200 ms, mean 1.960 ms"]
    assert {m.key: m.value for m in found.metrics}["step.p50"] == 200_000
    assert analyze_phases(TraceIndex(merged(tmp_path, steps(300, 200, 200)))).notes == []
