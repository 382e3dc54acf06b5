"""Cases that take their process down, hang or lose the device cost themselves alone."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from dsv4prof.errors import InputError
from dsv4prof.sync.measured import Case, CaseFile, Meta, Truth
from dsv4prof.sync.runtime.truth.campaign import InterruptedMeasuringError, measure_all

CHILD = Path(__file__).resolve().parents[3] / "support" / "truth_child.py"


def run(*calls: str, patience_s: float = 60.0) -> Truth:
    cases = [Case(id=f"{place}-{call}", call=call) for place, call in enumerate(calls)]
    return measure_all(
        CaseFile(Meta(prelude="x = 1\n"), cases),
        patience_s=patience_s,
        command=lambda job, out: [sys.executable, str(CHILD), str(job), str(out)],
    )


def test_rows_come_in_the_order_of_the_cases() -> None:
    truth = run("waits", "free", "waits")
    assert [row.syncs for row in truth.rows] == [True, False, True]
    assert (truth.meta.device, truth.meta.prelude) == ("Fake 9000", "x = 1\n")


@pytest.mark.parametrize(("bad", "why"), [("die", "signal 9"), ("cut", "signal 9"), ("lose", "the device was lost")])
def test_a_case_that_ends_its_process_costs_itself_alone(bad: str, why: str) -> None:
    truth = run("waits", bad, "free", bad, "waits")
    assert [row.syncs for row in truth.rows] == [True, None, False, None, True]
    assert all(why in truth.rows[place].error for place in (1, 3))


def test_bad_cases_alone_end_as_well() -> None:
    truth = run("die", "lose", "die")
    assert [bool(row.error) for row in truth.rows] == [True, True, True]


def test_a_case_that_hangs_is_given_up() -> None:
    truth = run("free", "hang", "waits", patience_s=3.0)
    assert [row.syncs for row in truth.rows] == [False, None, True]
    assert truth.rows[1].error == "no answer within 3 s"


def test_a_child_that_cannot_start_is_one_error_with_its_last_words() -> None:
    with pytest.raises(InputError, match="torch is too old"):
        run("no start")


def test_ctrl_c_keeps_what_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    from dsv4prof.sync.runtime.truth import campaign

    def interrupted(self: object, process: object, out: Path, done: int, total: int) -> bool:
        while out.read_bytes().count(b"\n") < 3:
            pass
        raise KeyboardInterrupt

    monkeypatch.setattr(campaign._Child, "_watched", interrupted)
    with pytest.raises(InterruptedMeasuringError) as caught:
        run("waits", "free", "hang")
    assert [row.syncs for row in caught.value.truth.rows] == [True, False]
