"""A call that returned while the device was known to be busy has not waited for it."""

from __future__ import annotations

from typing import Any

from dsv4prof.model.syncs import Kind, Layer, Observation
from dsv4prof.sync.runtime.judging.verdicts import verdict
from dsv4prof.sync.runtime.watch.clocked import judged_by_time
from dsv4prof.sync.runtime.watch.merging import Call
from dsv4prof.sync.runtime.watch.stacks import known

BUSY_UNTIL = 20_000_000


def call(*layers: Layer, began: int, took: int, kind: Kind = Kind.SYNC, bracketed: bool = False) -> Call:
    made = Call(known(()), None)
    for layer in layers:
        timed: dict[str, Any] = {"start_ns": began, "blocked_ns": took} if layer == "callbacks" else {}
        made.add(Observation(layer=layer, kind=kind, direction="d2h", op="cudaX", reason="said", **timed))
    if bracketed:
        made.began_ns, made.span_ns = began, took
    return made


def test_a_wait_for_another_stream_costs_nothing_and_is_none() -> None:
    seen = judged_by_time([call("warn", "callbacks", began=1_000_000, took=40_000)], BUSY_UNTIL)
    said = verdict("x", ["warn", "callbacks"], seen)
    assert (said.syncs, said.kind) == (False, "SUSPECT")
    # Each layer is judged by what it says by itself.
    assert said.layers == {"warn": True, "callbacks": False}


def test_a_wait_to_the_end_of_the_work_is_one_however_late_it_began() -> None:
    for began in (1_000_000, 18_500_000):
        seen = judged_by_time([call("callbacks", began=began, took=BUSY_UNTIL - began + 10_000)], BUSY_UNTIL)
        assert verdict("x", ["callbacks"], seen).syncs


def test_without_a_clock_of_the_driver_the_bracket_tells_and_without_both_nothing_does() -> None:
    short = judged_by_time([call("explicit", began=1_000_000, took=9_000, bracketed=True)], BUSY_UNTIL)
    assert not verdict("x", ["explicit"], short).syncs
    unknown = judged_by_time([call("warn", began=0, took=0)], BUSY_UNTIL)
    assert verdict("x", ["warn"], unknown).syncs


def test_one_real_wait_beside_a_free_one_counts() -> None:
    calls = [call("callbacks", began=1, took=9), call("callbacks", began=1_000_000, took=19_500_000)]
    said = verdict("x", ["callbacks"], judged_by_time(calls, BUSY_UNTIL))
    assert (said.syncs, said.kind, said.times) == (True, "SYNC", 1)
