"""How well the clocks of the ranks agree, judged by collectives, which end at nearly one time on all ranks.

Ranks of one host share a clock, so their base times already align them. Between hosts there is an offset and a drift,
which this module does not correct yet: it measures what remains (on 4 GPUs of one node collectives end within 0.4 us).
"""

from __future__ import annotations

from statistics import median

from dsv4prof.model.event import Slice
from dsv4prof.model.trace import ClockFit, RankTrace

_GLOO = "gloo:"
_NCCL = "nccl"


def fit_clocks(traces: list[RankTrace]) -> list[ClockFit]:
    """One fit a rank, against the lowest rank: base times only, with the median gap of matched collective ends."""
    if not traces:
        return []
    ends = [_collective_ends(trace) for trace in traces]
    reference = ends[0]
    others = [_fit(trace, reference, own) for trace, own in zip(traces[1:], ends[1:], strict=True)]
    # The reference is off by nothing from itself, which says nothing while no other rank is measured against it.
    residual = 0 if any(fit.matches for fit in others) else None
    return [ClockFit(traces[0].coordinates.rank, 0, None, residual, 0, "reference rank"), *others]


def _fit(trace: RankTrace, reference: dict[str, list[int]], own: dict[str, list[int]]) -> ClockFit:
    shared = [key for key in reference if key in own]
    gaps = [
        abs(mine - theirs)
        for key in shared
        if len(own[key]) == len(reference[key])
        for mine, theirs in zip(own[key], reference[key], strict=True)
    ]
    rank = trace.coordinates.rank
    if gaps:
        return ClockFit(rank, 0, None, round(median(gaps)), len(gaps), "base times; residual from matching collectives")
    why = (
        "no collective occurs equally often in both ranks"
        if shared
        else "no collective in common with the reference rank"
    )
    return ClockFit(rank, 0, None, None, 0, f"base times; no residual: {why}")


def _collective_ends(trace: RankTrace) -> dict[str, list[int]]:
    """End times in order, for each kind of collective."""
    ends: dict[str, list[int]] = {}
    for slice_ in trace.slices:
        key = _collective(slice_)
        if key is not None:
            ends.setdefault(key, []).append(slice_.end_ns)
    for times in ends.values():
        times.sort()
    return ends


def _collective(slice_: Slice) -> str | None:
    if slice_.category == "kernel" and slice_.name.startswith(_NCCL):
        return f"kernel {slice_.name}"
    if slice_.category == "user_annotation" and slice_.name.startswith(_GLOO):
        return slice_.name
    return None
