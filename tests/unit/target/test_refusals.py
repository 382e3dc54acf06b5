"""What the leader refuses before any rank starts, and which rank it names when one falls."""

from __future__ import annotations

import math
import signal
import subprocess
import sys
from typing import Any

import pytest

from dsv4prof.errors import Dsv4profError, MissingExtraError, RankFailedError, UsageError
from dsv4prof.recorder.plan import RecordPlan
from dsv4prof.target import engine
from dsv4prof.target.engine import check
from dsv4prof.target.failures import FAILED, INTERRUPTED, RankExit, RankFailure, as_rank_failed, root_cause
from dsv4prof.target.spec import RunSpec


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"tp": 16}, "heads"),
        ({"tp": 8}, "groups"),
        ({"tp": 100_000_000}, "100000000"),
        ({"num_drafts": 8}, "num_drafts"),
        ({"context_len": 1}, "context_len"),
        ({"context_len": 10_000_000}, "context_len"),
        ({"model": "nowhere"}, "nowhere"),
    ],
)
def test_the_leader_refuses_by_itself(changes: dict[str, object], word: str) -> None:
    with pytest.raises(Dsv4profError, match=word) as caught:
        check(RunSpec(**changes))  # type: ignore[arg-type]
    assert caught.value.hint


@pytest.mark.parametrize(
    "changes",
    [
        {"requests": 10**23},
        {"max_requests": 10**8},
        {"threads": 0},
        {"name": "n" * 300},
        {"port": -1},
        {"device": "tpu"},
    ],
)
def test_mistyped_values_are_refused_when_made(changes: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        RunSpec(**changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("plan", "word"),
    [
        ({"active": 1_000_001}, "steps"),
        ({"wait": 10**9}, "wait"),
        ({"warmup": 10**9}, "warmup"),
        ({"size_limit_mb": (1 << 20) + 1}, "size_limit_mb"),
        ({"time_limit_s": math.inf}, "time_limit_s"),
        ({"time_limit_s": math.nan}, "time limit"),
    ],
)
def test_a_plan_beyond_any_run_is_refused(plan: dict[str, Any], word: str) -> None:
    with pytest.raises(UsageError, match=word) as caught:
        RunSpec(profile=True, plan=RecordPlan(**plan))
    assert caught.value.hint


def test_the_largest_plan_is_none_of_them() -> None:
    RunSpec(profile=True, plan=RecordPlan(active=1_000_000, size_limit_mb=1 << 20, time_limit_s=1e6))
    RunSpec(profile=True, settings={"stages": [None, "default"]})


@pytest.mark.parametrize("given", [",", "", " , "])
def test_stages_without_a_name_are_refused(given: str) -> None:
    with pytest.raises(UsageError, match="stages"):
        RunSpec(profile=True, settings={"stages": [given, "--stages"]})


def test_checking_needs_no_torch() -> None:
    code = "import sys\nfrom dsv4prof.target.engine import check\nfrom dsv4prof.target.spec import RunSpec\n"
    code += "check(RunSpec()); print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "False"


def test_without_torch_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError) as caught:
        check(RunSpec())
    assert caught.value.hint is not None
    assert "dsv4prof[engine]" in caught.value.hint


def lost(rank: int) -> RankExit:
    return RankExit(rank, FAILED, RankFailure(RankFailedError.__name__, "lost the others", None, False), None)


def test_a_rank_that_noticed_is_not_the_rank_that_fell() -> None:
    fell = RankExit(1, -signal.SIGKILL, None, None)
    assert root_cause([lost(0), fell]) is fell


def test_a_rank_ended_from_outside_is_named() -> None:
    ended = RankExit(1, INTERRUPTED, None, None)
    assert root_cause([lost(0), ended]) is ended
    assert as_rank_failed(ended, "ended by SIGTERM", "kept").message == "rank 1 was ended by SIGTERM"


def test_what_the_leader_ended_is_blamed_last() -> None:
    stopped = RankExit(0, -signal.SIGTERM, None, None, ended_by_leader=True)
    failed = RankExit(1, 1, None, "boom")
    assert root_cause([stopped, failed]) is failed
    assert root_cause([RankExit(0, 0, None, None)]) is None


def test_places_in_torchs_source_stay_in_the_log() -> None:
    failure = RankFailure("RankFailedError", "lost: [/build/pair.cc:553] Connection closed", None, False)
    error = as_rank_failed(RankExit(0, FAILED, failure, None), None, "kept")
    assert error.message == "rank 0 failed: lost: Connection closed"
