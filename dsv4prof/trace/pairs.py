"""Slices that a file tells in two events, a begin (B) and an end (E), as tracers other than Kineto write them.

An end closes the begin that its thread opened last; it may add arguments.
"""

from __future__ import annotations

import msgspec

from dsv4prof.model.event import Slice, Track

NEVER_ENDED = "begin of a slice without its end"
NEVER_BEGAN = "end of a slice without its begin"


class Edge(msgspec.Struct, gc=False):
    """One B or E event, absolute nanoseconds."""

    begins: bool
    at_ns: int
    name: str
    category: str
    args: msgspec.Raw | None


def pair(edges: dict[Track, list[Edge]]) -> tuple[list[Slice], dict[str, int]]:
    """A slice for every pair, and how many events found no partner, by reason."""
    slices: list[Slice] = []
    lost = {NEVER_ENDED: 0, NEVER_BEGAN: 0}
    for track, own in edges.items():
        open_edges: list[Edge] = []
        for edge in sorted(own, key=lambda edge: edge.at_ns):
            if edge.begins:
                open_edges.append(edge)
            elif open_edges:
                begin = open_edges.pop()
                args = edge.args if begin.args is None else begin.args
                slices.append(
                    Slice(begin.name, begin.category, track, begin.at_ns, edge.at_ns - begin.at_ns, args)
                )
            else:
                lost[NEVER_BEGAN] += 1
        lost[NEVER_ENDED] += len(open_edges)
    return slices, {reason: count for reason, count in lost.items() if count}
