"""Lanes and open spans say what the plain definition says, at any size."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

_spans = st.lists(st.tuples(st.integers(0, 30), st.sampled_from([0, 0, 1, 2, 3, 5, 8, 13])), max_size=40).map(
    lambda spans: sorted(((start, start + dur) for start, dur in spans), key=lambda span: (span[0], -span[1]))
)


def _columns(spans) -> tuple[np.ndarray, np.ndarray]:
    array = np.array(spans, np.int64).reshape(-1, 2)
    return array[:, 0], array[:, 1]


def _lanes_by_definition(spans) -> list[int]:
    """The first lane none of whose open spans ends before the new one does."""
    lanes: list[list[int]] = []
    out = []
    for start, end in spans:
        lane = 0
        while lane < len(lanes) and any(start < at < end for at in lanes[lane]):
            lane += 1
        lanes[lane : lane + 1] = [[*lanes[lane], end] if lane < len(lanes) else [end]]
        out.append(lane + 1)
    return out


def _innermost_by_definition(spans, times) -> list[int]:
    """The span opened last among those that, with all opened behind them, are not over."""
    out = []
    stack: list[int] = []
    seen = 0
    for at in times:
        while seen < len(spans) and spans[seen][0] <= at:
            stack.append(seen)
            seen += 1
        while stack and spans[stack[-1]][1] <= at and spans[stack[-1]][0] < at:
            stack.pop()
        out.append(stack[-1] if stack else -1)
    return out


@given(st.lists(_spans, max_size=4))
@settings(max_examples=200, deadline=None)
def test_lanes(make, groups) -> None:
    flat = [span for group in groups for span in group]
    bounds = np.cumsum([0, *map(len, groups)])
    lanes = make.split_lanes(*_columns(flat), bounds)
    assert lanes.dtype == np.int32
    assert lanes.tolist() == [lane for group in groups for lane in _lanes_by_definition(group)]


@given(_spans, st.lists(st.integers(-1, 50), max_size=30).map(sorted))
@settings(max_examples=200, deadline=None)
def test_innermost(make, spans, times) -> None:
    found = make.innermost(*_columns(spans), np.array(times, np.int64))
    assert found.dtype == np.int64
    assert found.tolist() == _innermost_by_definition(spans, times)


def test_spans_outside_every_group_stay_where_they_are(make) -> None:
    start, end = _columns([(0, 5), (1, 6), (2, 7), (3, 8)])
    assert make.split_lanes(start, end, np.array([1, 3])).tolist() == [1, 1, 2, 1]
    assert make.split_lanes(start, end, np.array([], np.int64)).tolist() == [1, 1, 1, 1]
    assert make.split_lanes(start, end, np.array([0, 0, 4])).tolist() == [1, 2, 3, 4]


def test_a_zero_length_span_nests_in_what_is_open(make) -> None:
    start, end = _columns([(0, 5), (2, 2), (2, 2), (5, 5), (5, 9)])
    assert make.split_lanes(start, end, np.array([0, 5])).tolist() == [1, 1, 1, 1, 1]
    assert make.innermost(start, end, np.array([2, 3, 5, 9])).tolist() == [2, 0, 4, -1]


def test_many_spans_that_all_overlap(both) -> None:
    """Each needs a lane of its own; half of them end before the next half comes."""
    many = 20_000
    first = np.arange(many, dtype=np.int64)
    start, end = np.concatenate([first, first + 10 * many]), np.concatenate([first + 2 * many, first + 20 * many])
    began = time.process_time()
    for make in both:
        lanes = make.split_lanes(start, end, np.array([0, 2 * many]))
        assert lanes.tolist() == [*range(1, many + 1)] * 2
    # What compares every span with every lane takes minutes.
    assert time.process_time() - began < 20


@pytest.mark.parametrize("bounds", [[0, 5], [-1, 2], [2, 1]])
def test_bounds_outside_the_spans_are_refused(make, bounds) -> None:
    with pytest.raises(ValueError, match="bounds that do not ascend"):
        make.split_lanes(*_columns([(0, 1)] * 3), np.array(bounds))


def test_unsorted_times_and_columns_of_other_lengths_are_refused(make) -> None:
    start, end = _columns([(0, 1), (2, 3)])
    with pytest.raises(ValueError, match="ascend"):
        make.innermost(start, end, np.array([2, 1]))
    with pytest.raises(ValueError, match="2 starts and 1 ends"):
        make.innermost(start, end[:1], np.array([2]))
    with pytest.raises(ValueError, match="2 starts and 1 ends"):
        make.split_lanes(start, end[:1], np.array([0, 2]))
