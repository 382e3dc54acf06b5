"""The verdict on a case, on a device that is played: clock, queue and calls follow the test's script."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dsv4prof.sync.measured import Case, Measurement
from dsv4prof.sync.runtime.truth.probe import DeviceLostError, Traced, measure


class FakeDevice:
    """Time moves only when a call spends it. `wait` waits for what is queued, `spend` costs host time."""

    sleep_ms = 20.0

    def __init__(self) -> None:
        self.now = 0.0
        self.busy_until = 0.0
        self.warned = 0
        self.runs = 0
        self.lost = False
        self.settled_busy = 0

    def namespace(self, needs: str) -> dict[str, Any]:
        self.runs += 1
        return {"wait": self.wait, "spend": self.spend, "warn": self.warn, "lose": self.lose, "run": self.runs}

    def settle(self) -> None:
        if self.lost:
            raise DeviceLostError("illegal memory access")
        self.wait()

    def occupy(self, times: int) -> None:
        self.busy_until = max(self.now, self.busy_until) + times * self.sleep_ms

    def done(self) -> bool:
        return self.now >= self.busy_until

    def now_ms(self) -> float:
        return self.now

    def warnings_of(self, call: Callable[[], None]) -> int:
        self.warned = 0
        call()
        return self.warned

    def traced(self, call: Callable[[], None]) -> Traced:
        call()
        return Traced(ops=["aten::fake"])

    def wait(self) -> None:
        self.now = max(self.now, self.busy_until)

    def spend(self, ms: float) -> None:
        self.now += ms

    def warn(self) -> None:
        self.warned += 1

    def lose(self) -> None:
        self.lost = True
        raise RuntimeError("device-side assert triggered")


def verdict(call: str, **case: str) -> Measurement:
    return measure(Case(id="c", call=call, **case), "", FakeDevice())


def test_a_call_that_waits_for_the_queue_syncs() -> None:
    found = verdict("spend(0.1); wait()")
    assert found.syncs is True
    assert found.slow_ms == pytest.approx(20.0, abs=0.2)
    assert found.error == ""
    assert found.ops == ["aten::fake"]


def test_a_call_that_returns_while_the_device_works_does_not() -> None:
    found = verdict("spend(0.3)")
    assert found.syncs is False
    assert found.slow_ms == pytest.approx(0.3)


def test_a_call_that_is_slow_on_its_own_is_no_sync() -> None:
    """25 ms of host work outlast one kernel of 20 ms, though nothing was waited for."""
    found = verdict("spend(25)")
    assert found.syncs is False
    assert "slow on its own" in found.note


def test_a_slow_call_that_waits_as_well_syncs() -> None:
    found = verdict("spend(25); wait()")
    assert found.syncs is True
    assert found.slow_ms is not None
    assert found.slow_ms > 90


def test_warnings_are_counted_in_a_run_of_their_own() -> None:
    assert verdict("warn(); warn(); wait()").warned == 2
    assert verdict("spend(1)").warned == 0


def test_a_case_that_raises_is_a_row_with_its_error() -> None:
    found = verdict("raise ValueError('no such thing')")
    assert found.syncs is None
    assert found.error == "ValueError: no such thing"


def test_a_case_that_is_no_python_is_a_row_with_its_error() -> None:
    assert verdict("x = = 1").error.startswith("SyntaxError")


def test_a_lost_device_ends_the_process_and_not_only_the_case() -> None:
    with pytest.raises(DeviceLostError):
        verdict("lose()")


def test_runs_that_disagree_are_decided_by_a_third() -> None:
    """The third run of the case (its first timed behind a kernel) waits, as a call does that fills a cache first."""
    found = verdict("wait() if run == 3 else spend(1)")
    assert found.syncs is False
    assert "disagreed" in found.note
    assert found.slow_ms == pytest.approx(1.0)


def test_setup_runs_before_the_clock_and_after_when_it_has_stopped() -> None:
    device = FakeDevice()
    case = Case(id="c", setup="spend(50)", call="spend(1)", after="spend(500)")
    assert measure(case, "spend(1000)", device).slow_ms == pytest.approx(1.0)


def test_after_runs_even_where_the_call_raises() -> None:
    device = FakeDevice()
    measure(Case(id="c", call="raise KeyError(1)", after="spend(500)"), "", device)
    assert device.now >= 500


def test_every_run_has_fresh_names() -> None:
    assert verdict("assert 'seen' not in globals(); seen = 1").error == ""
