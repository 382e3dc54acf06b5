"""Lanes of overlapping spans and the span that is open at a time, in Python alone; see `dsv4prof.trace.lanes`."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from dsv4prof.trace.columns import Ints, Places

_OPEN_END = 2**63 - 1


def split_lanes(start: Ints, end: Ints, bounds: Ints) -> Places:
    """Lane (1, 2, ...) of each span: the first in which it nests, in its group `bounds[j]:bounds[j+1]`.

    Spans are ns, (n,), parents first in each group; those outside every group stay in lane 1. O(n log lanes).
    Raises ValueError when the bounds are not ascending places in the spans.
    """
    check_bounds(start, end, bounds)
    lanes = np.ones(len(start), np.int32)
    edges = bounds.tolist()
    starts, ends = start.tolist(), end.tolist()
    for first, last in pairwise(edges):
        _split(starts, ends, first, last, lanes)
    return lanes


def _split(starts: list[int], ends: list[int], first: int, last: int, lanes: Places) -> None:
    stack: list[int] = []
    others: _Lanes | None = None
    for place in range(first, last):
        begin, end = starts[place], ends[place]
        while stack and stack[-1] <= begin:
            stack.pop()
        if not stack or end <= stack[-1]:
            stack.append(end)
        else:
            # Nearly every file's spans nest in lane 1, which is why only the others pay for a tree.
            others = others or _Lanes()
            lanes[place] = others.place(begin, end) + 2


class _Lanes:
    """Stacks of open spans' ends, and a tree over their tops that finds the first one in which a span nests.

    A lane's top may be over by now: only looking at it tells. So a node keeps the least top, which may be over, and
    the greatest, in which the span may nest; an empty lane's top is later than any time.
    """

    def __init__(self) -> None:
        self.stacks: list[list[int]] = [[]]
        self.size = 1
        self.least = [0, _OPEN_END]
        self.most = [0, _OPEN_END]

    def place(self, start: int, end: int) -> int:
        while True:
            lane = self._first(start, end)
            if lane is None:
                lane = len(self.stacks)
                self._grow()
            stack = self.stacks[lane]
            while stack and stack[-1] <= start:
                stack.pop()
            if not stack or end <= stack[-1]:
                stack.append(end)
                self._top(lane, end)
                return lane
            self._top(lane, stack[-1])

    def _first(self, start: int, end: int) -> int | None:
        least, most = self.least, self.most
        if least[1] > start and most[1] < end:
            return None
        node = 1
        while node < self.size:
            node *= 2
            if least[node] > start and most[node] < end:
                node += 1
        lane = node - self.size
        return lane if lane < len(self.stacks) else None

    def _top(self, lane: int, top: int) -> None:
        node = lane + self.size
        least, most = self.least, self.most
        least[node] = most[node] = top
        while node > 1:
            node //= 2
            least[node] = min(least[2 * node], least[2 * node + 1])
            most[node] = max(most[2 * node], most[2 * node + 1])

    def _grow(self) -> None:
        self.stacks.append([])
        if len(self.stacks) <= self.size:
            return
        self.size *= 2
        self.least = [_OPEN_END] * (2 * self.size)
        self.most = [_OPEN_END] * (2 * self.size)
        for lane, stack in enumerate(self.stacks):
            if stack:
                self._top(lane, stack[-1])


def innermost(start: Ints, end: Ints, at: Ints) -> Ints:
    """For each time the place of the span that was opened last and is still open, or -1.

    Spans (ns, (n,)) are those of one track, parents first; times (ns, (m,)) ascend. Result: int64 (m,). A span is open
    at its start, and no longer at its end.
    """
    check_times(start, end, at)
    starts, ends = start.tolist(), end.tolist()
    found = np.full(len(at), -1, np.int64)
    stack: list[int] = []
    place = 0
    for row, time in enumerate(at.tolist()):
        while place < len(starts) and starts[place] <= time:
            stack.append(place)
            place += 1
        while stack and ends[stack[-1]] <= time and starts[stack[-1]] < time:
            stack.pop()
        if stack:
            found[row] = stack[-1]
    return found


def check_bounds(start: Ints, end: Ints, bounds: Ints) -> None:
    """Raise ValueError unless `bounds` are ascending places in spans that have a start and an end each."""
    _check_spans(start, end)
    if len(bounds) and (bounds[0] < 0 or bounds[-1] > len(start) or (bounds[1:] < bounds[:-1]).any()):
        raise ValueError(f"groups of {len(start)} spans have bounds that do not ascend in them")


def check_times(start: Ints, end: Ints, at: Ints) -> None:
    """Raise ValueError unless the times ascend and the spans have a start and an end each."""
    _check_spans(start, end)
    if (at[1:] < at[:-1]).any():
        raise ValueError("times do not ascend")


def _check_spans(start: Ints, end: Ints) -> None:
    if len(start) != len(end):
        raise ValueError(f"{len(start)} starts and {len(end)} ends")
