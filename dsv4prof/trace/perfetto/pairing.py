"""Begins and ends -> slices.

A viewer sorts by time and lets an end close what its track opened last. torch writes all begins of a kind and then all
their ends in the same order; there the order says which end belongs to which begin, also where times alone would not.
"""

from __future__ import annotations

from itertools import groupby, pairwise

import msgspec

from dsv4prof.trace.perfetto.records import Record
from dsv4prof.trace.perfetto.schema import Kind


class Paired(msgspec.Struct, gc=False):
    """A slice; the arguments of its end are kept when its begin has none."""

    begin: Record
    end_ns: int
    args: bytes


def pair(edges: list[Record]) -> tuple[list[Paired], int, int]:
    """(slices, begins without an end, ends without a begin) of one sequence's edges in file order."""
    if any(after.at_ns < before.at_ns for before, after in pairwise(edges)):
        grouped = _by_groups(edges)
        if grouped is not None and not (_cross(grouped) and _closes_in_order(edges)):
            return grouped, 0, 0
    return _by_stack(sorted(edges, key=lambda edge: edge.at_ns))


def _cross(slices: list[Paired]) -> bool:
    """Whether any overlap on their track without nesting."""
    stacks: dict[int, list[int]] = {}
    for each in sorted(slices, key=lambda each: (each.begin.at_ns, -each.end_ns)):
        stack = stacks.setdefault(each.begin.track, [])
        while stack and stack[-1] <= each.begin.at_ns:
            stack.pop()
        if stack and each.end_ns > stack[-1]:
            return True
        stack.append(each.end_ns)
    return False


def _closes_in_order(edges: list[Record]) -> bool:
    """Whether the file itself closes last what it opened first, so that its order says nothing else."""
    slices, _, orphans = _by_stack(edges)
    return not orphans and all(each.end_ns >= each.begin.at_ns for each in slices)


def _by_stack(edges: list[Record]) -> tuple[list[Paired], int, int]:
    slices: list[Paired] = []
    open_edges: dict[int, list[Record]] = {}
    orphans = 0
    for edge in edges:
        stack = open_edges.setdefault(edge.track, [])
        if edge.kind == Kind.BEGIN:
            stack.append(edge)
        elif stack:
            begin = stack.pop()
            slices.append(Paired(begin, edge.at_ns, begin.args or edge.args))
        else:
            orphans += 1
    return slices, sum(map(len, open_edges.values())), orphans


def _by_groups(edges: list[Record]) -> list[Paired] | None:
    """Slices of runs of begins, each followed by a run of as many ends in the same order; None where it is not so."""
    runs = [list(run) for _, run in groupby(edges, key=lambda edge: edge.kind)]
    if len(runs) % 2 or runs[0][0].kind != Kind.BEGIN:
        return None
    slices: list[Paired] = []
    for begins, ends in zip(runs[::2], runs[1::2], strict=True):
        if len(begins) != len(ends):
            return None
        for begin, end in zip(begins, ends, strict=True):
            if begin.track != end.track or end.at_ns < begin.at_ns:
                return None
            slices.append(Paired(begin, end.at_ns, begin.args or end.args))
    return slices
