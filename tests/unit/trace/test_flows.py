"""Arrows: unique integer ids, each start with its ends, orphans counted."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dsv4prof.model.event import FlowPoint, Track
from dsv4prof.trace.flows import flow_base, renumber

TRACK = Track(1, 1)


def _point(ph: str, number: int | str, at: int, cat: str = "ac2g") -> FlowPoint:
    return FlowPoint(ph, cat, cat, TRACK, at, number)


def test_ids_of_two_categories_do_not_meet() -> None:
    kept, lost = renumber(
        [_point("s", 1, 0), _point("f", 1, 5), _point("s", 1, 0, "fwdbwd"), _point("f", 1, 5, "fwdbwd")]
    )
    assert [(p.ph, p.id) for p in kept] == [("s", 1), ("f", 1), ("s", 2), ("f", 2)]
    assert lost == []


def test_string_ids_become_integers() -> None:
    kept, _ = renumber([_point("s", "0x1f", 0), _point("f", "0x1f", 5)])
    assert [p.id for p in kept] == [1, 1]


def test_an_end_without_a_start_is_removed_and_counted() -> None:
    kept, lost = renumber([_point("f", 1, 5), _point("s", 2, 1), _point("f", 2, 5)])
    assert [p.ph for p in kept] == ["s", "f"]
    assert [(d.count, d.reason) for d in lost] == [(1, "arrow end without a start")]


def test_a_start_without_an_end_and_an_end_too_early_are_removed() -> None:
    kept, lost = renumber([_point("s", 1, 9), _point("f", 1, 5), _point("s", 2, 0)])
    assert kept == []
    assert [(d.count, d.reason) for d in lost] == [(1, "arrow end before its start"), (2, "arrow start without an end")]


def test_a_graph_launch_keeps_all_its_ends_and_a_reused_id_is_split() -> None:
    points = [_point("s", 7, 0), _point("f", 7, 1), _point("f", 7, 2), _point("s", 7, 10), _point("f", 7, 12)]
    kept, lost = renumber(points)
    assert [(p.ph, p.id) for p in kept] == [("s", 1), ("f", 1), ("f", 1), ("s", 2), ("f", 2)]
    assert lost == []


@given(st.lists(st.tuples(st.sampled_from("stf"), st.integers(0, 4), st.integers(0, 20))))
def test_whatever_comes_every_flow_starts_once_and_first(raw: list[tuple[str, int, int]]) -> None:
    kept, lost = renumber([_point(ph, number, at) for ph, number, at in raw])
    assert len(kept) + sum(d.count for d in lost) == len(raw)
    for number in {p.id for p in kept}:
        arrow = [p for p in kept if p.id == number]
        assert [p.ph for p in arrow].count("s") == 1
        assert arrow[0].ph == "s"
        assert arrow[0].at_ns == min(p.at_ns for p in arrow)


def test_bases_of_ranks_never_meet() -> None:
    assert flow_base(1) - flow_base(0) > 2**31
    assert flow_base(1023) < 2**53
