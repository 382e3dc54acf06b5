"""When a view server stops by itself."""

from __future__ import annotations

from dsv4prof.view.lifetime import Lifetime


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_it_waits_for_the_page_until_the_limit() -> None:
    clock = Clock()
    life = Lifetime(5, 60, clock=clock)
    clock.now += 59
    assert life.over() is None
    clock.now += 1
    assert life.over() == "its limit of 60 s has passed, the trace was never fetched"


def test_idle_time_counts_from_the_last_request_and_only_with_the_trace() -> None:
    clock = Clock()
    life = Lifetime(5, 60, clock=clock)
    with life.request():
        pass
    clock.now += 10
    assert life.over() is None
    with life.request():
        life.trace_fetched()
        clock.now += 6
        assert life.over() is None
    clock.now += 4
    with life.request():
        pass
    clock.now += 4
    assert life.over() is None
    clock.now += 1
    assert life.over() == "the page has the trace and asked for nothing in 5 s"
    assert (life.requests, life.fetched) == (3, 1)


def test_the_limit_ends_a_transfer_as_well() -> None:
    clock = Clock()
    life = Lifetime(5, 60, clock=clock)
    with life.request():
        life.trace_fetched()
        clock.now += 61
        assert life.over() == "its limit of 60 s has passed"
