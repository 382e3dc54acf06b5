"""What is missing from the ranks' traces, before anything is concluded from them."""

from __future__ import annotations

from dsv4prof.analysis.result import Analysis
from dsv4prof.model.finding import Finding
from dsv4prof.rules import get
from dsv4prof.trace.index import RankIndex, TraceIndex
from dsv4prof.trace.losses import Told
from dsv4prof.trace.record_coverage import coverage_of
from dsv4prof.trace.vendor import is_launch

_HOUR_NS = 3600 * 10**9
NO_COST = "not a matter of time"


def analyze_quality(index: TraceIndex) -> Analysis:
    """Findings on cut and mended files, unusable events, missing ranks and missing device records."""
    findings: list[Finding] = []
    windows = []
    for rank in index.ranks:
        findings += [*file_findings(rank.rank, rank.merged.trace), *_records(rank)]
        if rank.slices:
            windows.append((min(s.start_ns for s in rank.slices), max(s.end_ns for s in rank.slices), rank.rank))
    findings += [*clock_findings(windows), *missing_findings(index.merged.missing_ranks, len(index.ranks))]
    return Analysis(findings=findings)


def missing_findings(missing: list[int], present: int) -> list[Finding]:
    """Ranks of the job that left no file."""
    if not missing:
        return []
    shown = ", ".join(map(str, missing[:8])) + (", ..." if len(missing) > 8 else "")
    world = len(missing) + present
    return [_finding("DSV501", f"{len(missing)} of {world} ranks are missing: {shown}", missing=missing)]


def file_findings(rank: int, told: Told) -> list[Finding]:
    """What a rank's file says of itself: cut, mended, contradictory, events left out."""
    found: list[Finding] = []
    for note in told.notes:
        if note.startswith("file ends early"):
            found.append(_finding("DSV401", f"rank {rank}: {note}", rank=rank))
        elif "the name was believed" in note:
            found.append(_finding("DSV502", f"rank {rank}: {note}", rank=rank))
        else:
            found.append(_finding("DSV404", f"rank {rank}: {note}", rank=rank, reason=note))
    for dropped in told.dropped:
        if dropped.count and not dropped.harmless:
            message = f"rank {rank}: {dropped.count:,} left out: {dropped.reason}"
            found.append(_finding("DSV402", message, rank=rank, count=dropped.count, reason=dropped.reason))
    return found


def clock_findings(windows: list[tuple[int, int, int]]) -> list[Finding]:
    """Ranks whose window (first ns, last ns, rank) lies more than an hour away from where most ranks are."""
    groups: list[list[tuple[int, int, int]]] = []
    reached = 0
    for window in sorted(windows):
        if not groups or window[0] - reached > _HOUR_NS:
            groups.append([])
        groups[-1].append(window)
        reached = max(reached, window[1])
    if len(groups) < 2:
        return []
    most = max(groups, key=len)
    low, high = most[0][0], max(end for _, end, _ in most)
    apart = sorted((rank, max(low - end, start - high)) for g in groups if g is not most for start, end, rank in g)
    return [
        _finding(
            "DSV505",
            f"rank {rank}: its times lie {gap / _HOUR_NS:,.0f} hours from those of rank {most[0][2]}; "
            "clocks cannot be compared",
            rank=rank,
            gap_ns=gap,
        )
        for rank, gap in apart
    ]


def _records(rank: RankIndex) -> list[Finding]:
    launches = sum(1 for index in rank.runtime_calls if is_launch(rank.slices[index].name))
    if launches and not rank.gpu_ops:
        message = f"rank {rank.rank}: {launches:,} launches, but no device record; device figures are unknown"
        return [_finding("DSV403", message, rank=rank.rank, launches=launches)]
    told = coverage_of(rank)
    if told.complete:
        return []
    return [_finding("DSV403", told.text, rank=rank.rank, launches=told.launches, recorded=told.recorded)]


def _finding(code: str, message: str, **evidence: object) -> Finding:
    rule = get(code)
    return Finding(
        code=code,
        severity=rule.severity,
        message=message,
        evidence=evidence,
        cost_reason=NO_COST,
        fingerprint=f"{code}-{evidence.get('rank', '')}-{evidence.get('reason', '')}",
    )
