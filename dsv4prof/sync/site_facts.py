"""What a site of host reads did over a trace: how often, where, and what it cost, in plain numbers."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Sequence
from statistics import median
from typing import Any

from dsv4prof.sync.read import Read
from dsv4prof.trace.index import RankIndex, TraceIndex
from dsv4prof.trace.steps import accepted_markers

Site = Sequence[tuple[RankIndex, Read]]


def counts(index: TraceIndex, site: Site) -> dict[str, Any]:
    """How often the reads of a site happened. `per_step` counts over the steps of the kinds and ranks that have any."""
    total = sum(read.count for _, read in site)
    calls = len({(rank.rank, read.context.call) for rank, read in site})
    kinds = {step.kind for rank, read in site if (step := rank.step_at(rank.slices[read.index].start_ns))}
    ranks = sorted({rank.rank for rank, _ in site})
    steps = sum(1 for step in index.steps if step.kind in kinds and step.rank in ranks)
    phases = Tally(phase for _, read in site if (phase := read.context.phase))
    return {
        "reads": total,
        "calls": calls,
        "per_call": round(total / calls, 2),
        "per_step": round(total / steps, 2) if steps else None,
        "steps": steps,
        "step_kinds": sorted(kinds),
        "ranks": ranks,
        "spans": list(dict.fromkeys(span for _, read in site for span in read.context.spans)),
        "phases": dict(sorted(phases.items())),
    }


def costs(index: TraceIndex, site: Site) -> dict[str, Any]:
    """Nanoseconds of a site with device records: host time blocked, device idle caused, lead of the host lost.

    Sums over all reads, and a step and an output token of one rank where the trace tells them; `by_rank` has each
    rank's sums. What no read of the site shows is None.
    """
    steps: int = counts(index, site)["steps"]
    blocked = [read.blocked_ns or 0 for _, read in site]
    idle = [read.idle_ns for _, read in site if read.idle_ns is not None]
    ahead = [read.ahead for _, read in site if read.ahead is not None]
    lost = sum(each.lost_ns for each in ahead)
    tokens = sum(_tokens(rank) for rank in {rank.rank: rank for rank, _ in site}.values())
    return {
        "blocked_ns": sum(blocked),
        "blocked_mean_ns": round(sum(blocked) / len(site)),
        "blocked_median_ns": round(median(blocked)),
        "blocked_per_token_ns": round(sum(blocked) / tokens) if tokens else None,
        "gpu_idle_ns": sum(idle) if idle else None,
        "gpu_idle_per_step_ns": round(sum(idle) / steps) if idle and steps else None,
        "gpu_idle_per_token_ns": round(sum(idle) / tokens) if idle and tokens else None,
        "run_ahead_before_ns": round(median(each.before_ns for each in ahead)) if ahead else None,
        "run_ahead_after_ns": round(median(each.after_ns for each in ahead)) if ahead else None,
        "run_ahead_lost_ns": lost if ahead else None,
        "run_ahead_lost_per_step_ns": round(lost / steps) if ahead and steps else None,
        "by_rank": _by_rank(site),
        "runtime_calls": dict(sorted(Tally(call for _, read in site for call in read.calls).items())),
    }


def _tokens(rank: RankIndex) -> int:
    """Output tokens of a rank, where its verifies say so."""
    return sum(marker.tokens for marker in accepted_markers(rank.slices))


def _by_rank(site: Site) -> dict[str, dict[str, int]]:
    table: dict[int, dict[str, int]] = {}
    for rank, read in site:
        sums = table.setdefault(rank.rank, {"reads": 0, "blocked_ns": 0, "gpu_idle_ns": 0})
        sums["reads"] += read.count
        sums["blocked_ns"] += read.blocked_ns or 0
        sums["gpu_idle_ns"] += read.idle_ns or 0
    return {str(number): table[number] for number in sorted(table)}
