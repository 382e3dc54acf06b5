"""Slices that overlap on one track without nesting, which Perfetto drops in silence: each goes to an extra lane.

About half of real files have some: whole step annotations beside python stacks, kernels of two streams on one row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import itemgetter

from dsv4prof.model.event import Slice, Track


def by_track(slices: list[Slice]) -> dict[Track, list[int]]:
    """Indexes of the slices of each track, ordered so that a parent comes before its children."""
    tracks: dict[Track, list[int]] = {}
    for index, slice_ in enumerate(slices):
        tracks.setdefault(slice_.track, []).append(index)
    for indexes in tracks.values():
        indexes.sort(key=lambda index: (slices[index].start_ns, -slices[index].dur_ns))
    return tracks


def split_lanes(spans: Iterable[tuple[int, int, int]]) -> dict[int, int]:
    """Lane (2, 3, ...) of each span that does not nest in lane 1; spans are (start, end, key), parents first.

    A span takes the first lane in which it nests. Keys that stay in lane 1 are left out.
    """
    stacks: list[list[int]] = []
    moved: dict[int, int] = {}
    for start, end, key in spans:
        for lane, stack in enumerate(stacks):
            if _nests(stack, start, end):
                stack.append(end)
                if lane:
                    moved[key] = lane + 1
                break
        else:
            stacks.append([end])
            if len(stacks) > 1:
                moved[key] = len(stacks)
    return moved


def _nests(stack: list[int], start: int, end: int) -> bool:
    while stack and stack[-1] <= start:
        stack.pop()
    return not stack or end <= stack[-1]


def innermost_at(slices: list[Slice], indexes: list[int], times: Iterable[int]) -> dict[int, int]:
    """For each time the slice of a track that was opened last and is still open; `indexes` parents first.

    That is the one to which an arrow at this time belongs, whichever lane it went to. A slice is open at its start,
    and no longer at its end.
    """
    found: dict[int, int] = {}
    stack: list[int] = []
    place = 0
    for at in sorted(times):
        while place < len(indexes) and slices[indexes[place]].start_ns <= at:
            stack.append(indexes[place])
            place += 1
        while stack and slices[stack[-1]].end_ns <= at and slices[stack[-1]].start_ns < at:
            stack.pop()
        if stack:
            found[at] = stack[-1]
    return found


def assign_lanes(
    slices: list[Slice], tracks: dict[Track, list[int]], lane_tid: Callable[[Track, int], int]
) -> dict[int, int]:
    """Index of each moved slice -> the tid of its lane; `lane_tid(track, lane)` names the lane."""
    moved: dict[int, int] = {}
    for track, indexes in tracks.items():
        spans = ((slices[i].start_ns, slices[i].end_ns, i) for i in indexes)
        for index, lane in sorted(split_lanes(spans).items(), key=itemgetter(0)):
            moved[index] = lane_tid(track, lane)
    return moved
