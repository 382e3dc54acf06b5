"""Which steps belong to which window, told by lists of steps."""

from __future__ import annotations

import enum
import warnings
from collections.abc import Sequence

import pytest

from dsv4prof.model.phase import Phase
from dsv4prof.model.session import EndedBy
from dsv4prof.recorder.plan import RecordPlan
from dsv4prof.recorder.stages import stage_of
from dsv4prof.recorder.trigger import Close, Open, Prepare, Trigger


def windows_of(plan: RecordPlan, modes: Sequence[object]) -> tuple[dict[str, list[int]], list[Close]]:
    """The steps that each window took in whole, and how the windows closed; only beginnings are announced."""
    trigger = Trigger(plan)
    held: dict[str, list[int]] = {}
    closed: list[Close] = []
    for number, mode in enumerate(modes):
        closed += [action for action in trigger.begin(mode) if isinstance(action, Close)]
        if trigger.window is not None:
            held.setdefault(trigger.window, []).append(number)
    closed += [action for action in trigger.end() if isinstance(action, Close)]
    return held, closed


def test_a_verify_step_belongs_to_decode_and_a_short_stage_leaves_no_stop_behind() -> None:
    modes = ["EXTEND"] * 2 + ["TARGET_VERIFY"] * 8 + ["IDLE"] + ["EXTEND"] * 4 + ["TARGET_VERIFY"] * 4
    held, closed = windows_of(RecordPlan(active=3, stages=("prefill", "decode")), modes)
    assert held == {"prefill": [0, 1], "decode": [2, 3, 4]}
    assert closed == [
        Close("prefill", EndedBy.STAGE_CHANGE, 2),
        Close("decode", EndedBy.MAX_STEPS, 3),
    ]


def test_idle_and_unknown_modes_neither_count_nor_close_a_window() -> None:
    modes = ["PREBUILT", "DECODE", "PREBUILT", "DECODE", "IDLE", "MODE_OF_TOMORROW", "DECODE", "DECODE"]
    with pytest.warns(UserWarning, match="mode_of_tomorrow") as caught:
        held, closed = windows_of(RecordPlan(active=3, stages=("decode",)), modes)
    assert len(caught) == 1
    assert held["decode"][0] == 1
    assert held["decode"][-1] == 6
    assert closed == [Close("decode", EndedBy.MAX_STEPS, 3)]


def test_an_unknown_mode_is_warned_about_once() -> None:
    with pytest.warns(UserWarning, match="once_only"):
        assert stage_of("once_only") is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert stage_of("once_only") is None
        assert stage_of("another_one") is None, "a program that makes warnings errors gets none from its own loop"


def test_a_stage_with_a_window_of_its_own_is_no_decode() -> None:
    plan = RecordPlan(active=2, stages=("decode", "target_verify"))
    held, _ = windows_of(plan, ["DECODE", "TARGET_VERIFY", "TARGET_VERIFY", "DECODE"])
    assert held == {"decode": [0], "target_verify": [1, 2]}


class Mode(enum.Enum):
    DRAFT_EXTEND_V2 = 7


@pytest.mark.parametrize(
    ("mode", "stage"),
    [
        (Phase.DRAFT, Phase.DRAFT), ("target-extend", Phase.TARGET_VERIFY), (Mode.DRAFT_EXTEND_V2, Phase.DRAFT_EXTEND),
        ("ForwardMode.MIXED", Phase.PREFILL), (None, None), ("idle", None), (Phase.IDLE, None),
    ],
)  # fmt: skip
def test_modes_are_known_by_their_names(mode: object, stage: Phase | None) -> None:
    assert stage_of(mode) is stage


def test_windows_repeat_and_each_warms_up() -> None:
    trigger = Trigger(RecordPlan(wait=1, warmup=1, active=2, windows=2))
    seen = [(step, trigger.begin() + trigger.end()) for step in range(9)]
    assert [(step, action) for step, actions in seen for action in actions] == [
        (1, Prepare("1")), (2, Open("1")), (3, Close("1", EndedBy.MAX_STEPS, 2)),
        (5, Prepare("2")), (6, Open("2")), (7, Close("2", EndedBy.MAX_STEPS, 2)),
    ]  # fmt: skip
    assert trigger.finished


def test_an_open_ended_window_waits_for_its_close() -> None:
    trigger = Trigger(RecordPlan(active=None, wait=2))
    for _ in range(50):
        trigger.begin()
    assert trigger.window == ""
    assert trigger.close(EndedBy.STOP).steps == 47
    assert trigger.finished


def test_what_never_opened_is_named() -> None:
    trigger = Trigger(RecordPlan(stages=("prefill", "decode")))
    assert trigger.unopened() == "no step was made"
    trigger.begin("prefill")
    trigger.close(EndedBy.STOP)
    assert trigger.unopened() == "no step of decode came"
