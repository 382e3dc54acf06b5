"""In which order a track's begins and ends must lie in a file, and which slices break the nesting.

Perfetto sorts packets by time and keeps the order of the file among equal times; an end closes what its track opened
last. So among equal times ends come first, inner before outer, then begins, outer before inner.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dsv4prof.trace.columns import Ints, Places


class Sequence(NamedTuple):
    """Packets in the order of the file: `slot` is the place of the event, `ends` whether it is a slice's end."""

    slot: Ints
    ends: np.ndarray


def begin_order(ts: Ints, dur: Ints, track: Places) -> Ints:
    """Places of events by time; among equal times by track, then longer first, then as given."""
    return np.lexsort((-dur, track, ts))


def sequence(ts: Ints, dur: Ints, is_slice: np.ndarray) -> Sequence:
    """Begins and ends of events that are in `begin_order`; what is no slice has no end."""
    count = len(ts)
    rank = np.arange(count, dtype=np.int64)
    closing = rank[is_slice]
    begin_key = 2 * rank
    end_key = np.where(dur[closing] > 0, -1 - closing, 2 * closing + 1)
    times = np.concatenate([ts, ts[closing] + dur[closing]])
    order = np.lexsort((np.concatenate([begin_key, end_key]), times))
    slots = np.concatenate([rank, closing])[order]
    return Sequence(slots, order >= count)


def crossing_tracks(packets: Sequence, track: Places, is_slice: np.ndarray) -> list[int]:
    """Tracks with slices that overlap without nesting: there an end would close another slice than its own."""
    kept = is_slice[packets.slot]
    slots, ends = packets.slot[kept], packets.ends[kept]
    by_track = np.argsort(track[slots], kind="stable")
    slots, ends = slots[by_track], ends[by_track]
    depth = np.cumsum(np.where(ends, -1, 1)) + ends
    at_begin = np.zeros(len(track), np.int64)
    at_begin[slots[~ends]] = depth[~ends]
    wrong = slots[ends][at_begin[slots[ends]] != depth[ends]]
    return sorted(set(track[wrong].tolist()))


def innermost(starts: list[int], ends: list[int], times: list[int]) -> list[int]:
    """For each of the ascending times the slice opened last and still open, as a place in begin order, or -1.

    A slice is open at its start, and no longer at its end.
    """
    found: list[int] = []
    stack: list[int] = []
    place = 0
    for at in times:
        while place < len(starts) and starts[place] <= at:
            while stack and ends[stack[-1]] <= starts[place] and starts[stack[-1]] < starts[place]:
                stack.pop()
            stack.append(place)
            place += 1
        while stack and ends[stack[-1]] <= at and starts[stack[-1]] < at:
            stack.pop()
        found.append(stack[-1] if stack else -1)
    return found
