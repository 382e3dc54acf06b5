"""All ranks end after the same step, whatever the moment of the request."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsv4prof.target.control import RunInterruptedError, StopControl, clear_stop, request_stop


def steps_of(control: StopControl, limit: int) -> int:
    made = 0
    try:
        while made < limit:
            control.boundary()
            made += 1
    except RunInterruptedError:
        pass
    return made


@pytest.mark.parametrize("lead", [0, 1])
@pytest.mark.parametrize("asked_after", [0, 3])
def test_both_ranks_make_the_same_steps(tmp_path: Path, asked_after: int, lead: int) -> None:
    """`lead`: how many boundaries rank 1 passes before rank 0 does; the collective stops it there."""
    first, second = StopControl(tmp_path, 0), StopControl(tmp_path, 1)
    for _ in range(asked_after):
        first.boundary()
        second.boundary()
    made = [asked_after, asked_after]
    for _ in range(lead):
        second.boundary()
        made[1] += 1
    request_stop(tmp_path)
    made[0] += steps_of(first, 10)
    made[1] += steps_of(second, 10)
    assert made == [asked_after + 1] * 2


def test_a_request_to_one_rank_ends_that_rank_only(tmp_path: Path) -> None:
    first, second = StopControl(tmp_path, 0), StopControl(tmp_path, 1)
    second.boundary()
    second.terminate("ended by SIGTERM")
    with pytest.raises(RunInterruptedError, match="SIGTERM"):
        second.boundary()
    assert steps_of(first, 5) == 5
    assert second.steps_begun == 1


def test_nothing_is_left_of_the_agreement(tmp_path: Path) -> None:
    request_stop(tmp_path)
    StopControl(tmp_path, 0).boundary()
    assert len(list(tmp_path.iterdir())) == 2
    clear_stop(tmp_path)
    assert list(tmp_path.iterdir()) == []
