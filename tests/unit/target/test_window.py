"""Where a recording is placed in a workload whose steps are known."""

from __future__ import annotations

import pytest

from dsv4prof.errors import UsageError
from dsv4prof.recorder.plan import RecordPlan
from dsv4prof.target.window import place_window


def kinds(text: str) -> list[str]:
    return [{"p": "prefill", "d": "decode"}[letter] for letter in text]


@pytest.mark.parametrize(
    ("steps", "active", "expected"),
    [
        ("pppppp" + "d" * 40, 24, "pppp" + "d" * 20),
        ("pppppp" + "d" * 40, 6, "p" + "d" * 5),
        ("p" + "d" * 40, 24, "p" + "d" * 23),
        ("d" * 30, 10, "d" * 10),
        ("pd" * 20, 12, "pd" * 6),
        ("ppd", 24, "ppd"),
        ("pppppppp" + "d" * 3, 4, "pddd"),
    ],
)
def test_the_window_shows_prefill_and_mostly_decode(steps: str, active: int, expected: str) -> None:
    wait = place_window(RecordPlan(active=active), kinds(steps))
    assert steps[wait : wait + active] == expected


def test_warm_up_comes_before_the_window_and_never_before_the_workload() -> None:
    plan = RecordPlan(active=6, warmup=3)
    steps = "p" + "d" * 20
    wait = place_window(plan, kinds(steps))
    assert wait >= 0
    assert wait + plan.warmup + plan.active <= len(steps)


def test_a_given_wait_is_kept_and_one_beyond_the_workload_refused() -> None:
    assert place_window(RecordPlan(wait=3, active=100), kinds("pddddd")) == 3
    with pytest.raises(UsageError, match="waits 6 steps, and the workload has 6"):
        place_window(RecordPlan(wait=5, warmup=1), kinds("pddddd"))
