"""What a serving step spends its time on: each phase a step, and what lies outside every phase.

A step lasts from its start to the start of the next, so the phases and `idle` add up to it. `idle` is the time of a
step outside any phase, with the gap after it.
"""

from __future__ import annotations

from itertools import pairwise

import msgspec

from dsv4prof.analysis.result import Analysis
from dsv4prof.model.phase import Phase
from dsv4prof.model.report import Cell, Column, Metric, Section
from dsv4prof.model.trace import StepSpan
from dsv4prof.trace.index import TraceIndex

_COLUMNS = [
    Column("phase", "phase"),
    Column("steps", "steps", "count"),
    Column("mean_ns", "mean", "ns"),
    Column("p50_ns", "p50", "ns"),
    Column("p99_ns", "p99", "ns"),
    Column("share", "share", "percent"),
]


class StepTimes(msgspec.Struct, frozen=True):
    """One step of one rank taken apart, nanoseconds. `phases` holds what occurred, IDLE included."""

    kind: str
    total_ns: int
    phases: dict[Phase, int]


def step_times(steps: list[StepSpan]) -> list[StepTimes]:
    """Each step with its gap to the next of the same rank; the gap counts only between consecutive indexes."""
    ordered = sorted(steps, key=lambda step: (step.rank, step.start_ns))
    times = [
        _times(step, max(0, after.start_ns - step.end_ns) if _consecutive(step, after) else 0)
        for step, after in pairwise(ordered)
    ]
    return [*times, *(_times(step, 0) for step in ordered[-1:])]


def _consecutive(step: StepSpan, after: StepSpan) -> bool:
    return step.rank == after.rank and after.index == step.index + 1


def _times(step: StepSpan, gap_ns: int) -> StepTimes:
    phases: dict[Phase, int] = {}
    covered = 0
    reached = step.start_ns
    for span in step.phases:
        start, end = max(span.start_ns, reached), min(span.end_ns, step.end_ns)
        if end <= start:
            continue
        phases[span.phase] = phases.get(span.phase, 0) + end - start
        covered += end - start
        reached = end
    total = step.end_ns - step.start_ns + gap_ns
    phases[Phase.IDLE] = phases.get(Phase.IDLE, 0) + total - covered
    return StepTimes(step.kind, total, phases)


# A mean so many times the median is decided by few long steps, often the first of each rank.
_SKEWED = 3


def percentile(values: list[int], share: float) -> int:
    """Nearest rank: the smallest value that at least `share` of all values do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * round(share * 1000) // 1000) - 1)]


def analyze_phases(index: TraceIndex) -> Analysis:
    """A table for each kind of step, and the means of the main kind (decode where there is one) as metrics."""
    times = step_times(index.steps)
    if not times:
        return Analysis(notes=["no steps: the trace names none (dsv4.step, step[...], ProfilerStep)"])
    kinds = sorted({step.kind for step in times}, key=lambda kind: (kind != "decode", kind))
    ranks = len({step.rank for step in index.steps})
    sections = [_section(kind, [step for step in times if step.kind == kind], ranks) for kind in kinds]
    main = [step for step in times if step.kind == kinds[0]]
    return Analysis(sections=sections, metrics=_metrics(kinds[0], main), notes=_skew(kinds[0], main))


def _named(times: list[StepTimes]) -> list[Phase]:
    """The phases to show; without any named one, all of a step would be idle, which says nothing."""
    found = [phase for phase in Phase if any(step.phases.get(phase) for step in times)]
    return [] if found == [Phase.IDLE] else found


def _section(kind: str, times: list[StepTimes], ranks: int) -> Section:
    total = sum(step.total_ns for step in times)
    rows = []
    for phase in _named(times):
        values = [step.phases[phase] for step in times if phase in step.phases]
        rows.append(_row(phase.value, values, len(times), total))
    rows.append(_row("step", [step.total_ns for step in times], len(times), total))
    name = f"{kind} steps" if kind else "steps"
    return Section(
        key=f"phases.{kind or 'step'}",
        title=f"{name.capitalize()} by phase",
        columns=_COLUMNS,
        rows=rows,
        note=f"{len(times)} {name} on {ranks} {'rank' if ranks == 1 else 'ranks'}; "
        "host time; a step lasts until the next one starts; mean over all, p50 and p99 over those with the phase",
    )


def _row(name: str, values: list[int], steps: int, total: int) -> dict[str, Cell]:
    return {
        "phase": name,
        "steps": len(values),
        "mean_ns": round(sum(values) / steps),
        "p50_ns": percentile(values, 0.5),
        "p99_ns": percentile(values, 0.99),
        "share": round(100 * sum(values) / total, 2) if total else 0.0,
    }


def _skew(kind: str, times: list[StepTimes]) -> list[str]:
    """Said where the mean, which heads a report, is not what a step usually takes."""
    totals = [step.total_ns for step in times]
    mean, usual = sum(totals) / len(totals), percentile(totals, 0.5)
    if mean <= _SKEWED * usual:
        return []
    name = f"{kind} steps" if kind else "steps"
    return [f"few long {name} decide the mean: p50 {usual / 1e6:,.3f} ms, mean {mean / 1e6:,.3f} ms"]


def _metrics(kind: str, times: list[StepTimes]) -> list[Metric]:
    name = f"{kind} step" if kind else "step"
    totals = [step.total_ns for step in times]
    metrics = [
        Metric("step.mean", "step", round(sum(totals) / len(totals)), "ns", f"mean of {len(times)} {name}s"),
        Metric("step.p50", "p50", percentile(totals, 0.5), "ns", f"p50 of {len(times)} {name}s"),
        Metric("step.p99", "p99", percentile(totals, 0.99), "ns", f"p99 of {len(times)} {name}s"),
    ]
    for phase in _named(times):
        spent = sum(step.phases.get(phase, 0) for step in times)
        metrics.append(
            Metric(f"phase.{phase.value}", phase.value, round(spent / len(times)), "ns", f"mean over {name}s")
        )
    return metrics
