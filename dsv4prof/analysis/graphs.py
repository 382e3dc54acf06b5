"""Which phases ran as captured graphs and which were launched kernel by kernel."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter as Tally
from collections.abc import Mapping

from dsv4prof.analysis.result import Analysis
from dsv4prof.model.finding import Finding
from dsv4prof.model.phase import Phase
from dsv4prof.model.report import Cell, Column, Section
from dsv4prof.model.trace import PhaseSpan
from dsv4prof.rules import get
from dsv4prof.trace.index import RankIndex, TraceIndex
from dsv4prof.trace.vendor import GRAPH_LAUNCH, is_launch

_COLUMNS = [
    Column("phase", "phase"),
    Column("captured", "captured", "count"),
    Column("eager", "eager", "count"),
    Column("unknown", "unknown", "count"),
    Column("reason", "reason"),
]


def analyze_graphs(index: TraceIndex, *, reasons: Mapping[str, str] | None = None, asked: bool = False) -> Analysis:
    """Captured and eager counts by phase. `reasons` gives the graph gate's words by phase name, from the session.

    `asked`: whether graphs were asked for. If not, without device records and any captured phase, that nothing was
    captured is only stated; else an eager phase is a finding.
    """
    counts = _counts(index)
    if not counts:
        return Analysis()
    reasons = reasons or {}
    wanted = asked or index.has_gpu or any(tally[True] for tally in counts.values())
    if not wanted:
        words = sorted({reasons[phase.value] for phase in counts if phase.value in reasons})
        return Analysis(notes=["graphs: none captured" + (f" ({'; '.join(words)})" if words else "")])
    rows: list[dict[str, Cell]] = [
        {
            "phase": phase.value,
            "captured": tally[True],
            "eager": tally[False],
            "unknown": tally[None],
            "reason": reasons.get(phase.value),
        }
        for phase, tally in counts.items()
    ]
    section = Section(key="graphs", title="Graphs", columns=_COLUMNS, rows=rows)
    findings = [
        _eager(phase, tally, reasons.get(phase.value))
        for phase, tally in counts.items()
        # A prompt has another shape each time: nobody captures it.
        if tally[False] and phase is not Phase.PREFILL
    ]
    return Analysis(sections=[section], findings=findings, notes=[_captured(counts)])


def _captured(counts: Mapping[Phase, Tally[bool | None]]) -> str:
    """How often each phase was captured, in a line."""
    shares = (f"{phase.value} {tally[True]:,} of {sum(tally.values()):,}" for phase, tally in counts.items())
    return f"graphs: captured {', '.join(shares)}"


def _counts(index: TraceIndex) -> dict[Phase, Tally[bool | None]]:
    counts: dict[Phase, Tally[bool | None]] = {}
    for rank in index.ranks:
        graphs = _starts(rank, graph=True)
        kernels = _starts(rank, graph=False)
        for step in rank.steps:
            for phase in step.phases:
                captured = phase.captured if phase.captured is not None else _launched(phase, graphs, kernels)
                counts.setdefault(phase.phase, Tally())[captured] += 1
    return {phase: counts[phase] for phase in Phase if phase in counts}


def _starts(rank: RankIndex, *, graph: bool) -> list[int]:
    calls = (rank.slices[index] for index in rank.runtime_calls)
    return sorted(call.start_ns for call in calls if is_launch(call.name) and (call.name in GRAPH_LAUNCH) is graph)


def _launched(phase: PhaseSpan, graphs: list[int], kernels: list[int]) -> bool | None:
    """Whether the phase launched a graph; None when it launched nothing that the trace shows."""
    if bisect_left(graphs, phase.end_ns) > bisect_left(graphs, phase.start_ns):
        return True
    if bisect_left(kernels, phase.end_ns) > bisect_left(kernels, phase.start_ns):
        return False
    return None


def _eager(phase: Phase, tally: Tally[bool | None], reason: str | None) -> Finding:
    rule = get("DSV301")
    total = sum(tally.values())
    why = f": {reason.removeprefix('eager: ')}" if reason else ""
    return Finding(
        code=rule.code,
        severity=rule.severity,
        message=f"{phase.value} ran eagerly{why}; {tally[False]} of {total} times",
        evidence={"phase": phase.value, "eager": tally[False], "captured": tally[True], "reason": reason},
        cost_reason="not measured: needs the same phase captured",
        fix="let the graph gate accept the phase's backend, if memory allows",
        fingerprint=f"{rule.code}-{phase.value}",
    )
