"""Overlaps without nesting go to lanes, in which every slice nests."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dsv4prof.model.event import Slice, Track
from dsv4prof.trace.lanes import by_track, split_lanes

TRACK = Track(1, 1)


def _nests(spans: list[tuple[int, int]]) -> bool:
    """The importer's own test: nothing may end after the slice that it began in."""
    stack: list[int] = []
    for start, end in spans:
        while stack and stack[-1] <= start:
            stack.pop()
        if stack and end > stack[-1]:
            return False
        stack.append(end)
    return True


def test_a_crossing_pair_is_split_and_equal_spans_are_not() -> None:
    assert split_lanes([(0, 10, 0), (5, 15, 1), (20, 30, 2), (20, 30, 3)]) == {1: 2}


def test_touching_spans_stay_in_one_lane() -> None:
    assert split_lanes([(0, 10, 0), (10, 20, 1), (20, 20, 2)]) == {}


def test_parents_come_before_children_of_the_same_start() -> None:
    slices = [Slice("child", "", TRACK, 0, 5), Slice("parent", "", TRACK, 0, 9)]
    assert by_track(slices)[TRACK] == [1, 0]


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 12)), max_size=40))
def test_every_lane_nests_and_nothing_is_lost(raw: list[tuple[int, int]]) -> None:
    slices = [Slice(str(n), "", TRACK, start, dur) for n, (start, dur) in enumerate(raw)]
    order = by_track(slices).get(TRACK, [])
    moved = split_lanes((slices[i].start_ns, slices[i].end_ns, i) for i in order)
    lanes: dict[int, list[tuple[int, int]]] = {}
    for index in order:
        lanes.setdefault(moved.get(index, 1), []).append((slices[index].start_ns, slices[index].end_ns))
    assert sum(map(len, lanes.values())) == len(slices)
    assert all(_nests(spans) for spans in lanes.values())
