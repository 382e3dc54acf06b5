"""Arrows between slices: ids that are unique over all ranks, and no arrow end without its start.

Perfetto keys a flow by (id, category, name) and not by process, and ids restart in every file: without new ids the
arrows of one rank end in another. Kineto also writes an end for runtime calls that launch nothing.
"""

from __future__ import annotations

from collections import Counter as Tally

from dsv4prof.model.event import FlowPoint
from dsv4prof.model.trace import Dropped

FLOW_BASE_BITS = 32


def flow_base(rank: int) -> int:
    """What to add to a rank's own ids (1, 2, ...); exact in a double up to rank 2**21."""
    return rank << FLOW_BASE_BITS


def renumber(flows: list[FlowPoint]) -> tuple[list[FlowPoint], list[Dropped]]:
    """Points with ids 1, 2, ... of their own, each flow one start followed by its ends; orphans are counted.

    A second start under one id begins a flow of its own. The result is ordered by id, then time, start first.
    """
    groups: dict[tuple[int | str, str, str], list[FlowPoint]] = {}
    for point in flows:
        groups.setdefault((point.id, point.category, point.name), []).append(point)
    kept: list[FlowPoint] = []
    lost: Tally[str] = Tally()
    next_id = 1
    for group in groups.values():
        for arrow in _arrows(group, lost):
            kept.extend(_with_id(point, next_id) for point in arrow)
            next_id += 1
    return kept, [Dropped(count, reason, harmless=True) for reason, count in sorted(lost.items())]


def _arrows(group: list[FlowPoint], lost: Tally[str]) -> list[list[FlowPoint]]:
    if len(group) > 1:
        group.sort(key=lambda point: (point.at_ns, "stf".index(point.ph)))
    arrows: list[list[FlowPoint]] = []
    early = 0
    for point in group:
        if point.ph == "s":
            arrows.append([point])
        elif arrows:
            arrows[-1].append(point)
        else:
            early += 1
    if early:
        lost["arrow end before its start" if arrows else "arrow end without a start"] += early
    lonely = sum(1 for arrow in arrows if len(arrow) == 1)
    if lonely:
        lost["arrow start without an end"] += lonely
    return [arrow for arrow in arrows if len(arrow) > 1]


def _with_id(point: FlowPoint, number: int) -> FlowPoint:
    return FlowPoint(point.ph, point.name, point.category, point.track, point.at_ns, number, point.binding)
