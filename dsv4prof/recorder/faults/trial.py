"""What is found out in fresh processes beside the list: the release that this machine bears, and what a start costs."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import msgspec

from dsv4prof.recorder.faults import cost
from dsv4prof.recorder.faults.judge import TraceState, ended_words, last_words, trace_files, trace_state
from dsv4prof.recorder.faults.release_trial import RECORDINGS, WAYS
from dsv4prof.recorder.faults.run import run_fresh

_PATIENCE_S = 180.0


class ReleaseAttempt(msgspec.Struct, frozen=True):
    """`way` is a plan's `release`. `survived`: the process ended with 0 and left every trace whole."""

    way: str
    verdict: str
    status: int | None
    seconds: float
    survived: bool


class ReleaseTrial(msgspec.Struct, frozen=True):
    """`recommended` is the first way that survived, None when none did."""

    recommended: str | None
    attempts: list[ReleaseAttempt]


class StartCosts(msgspec.Struct, frozen=True):
    """Of plain torch, and of the boundary at which a window of dsv4prof opens; None where it could not be measured."""

    plain: cost.StartCost | None
    ours: cost.StartCost | None


def try_releases(*, python: str = sys.executable) -> ReleaseTrial:
    """Record and release several times, first as by default; the other way is tried where that ends the process."""
    attempts: list[ReleaseAttempt] = []
    with tempfile.TemporaryDirectory(prefix="dsv4prof-release-") as scratch:
        for way in WAYS:
            folder = Path(scratch) / way
            ended = run_fresh(f"release-{way}", "ours", folder, _PATIENCE_S, python=python)
            whole = [trace_state(path, 0) is TraceState.WHOLE for path in trace_files(folder)].count(True)
            survived = ended.status == 0 and whole == RECORDINGS
            words = f"{whole} of {RECORDINGS} traces" if ended.status == 0 else ended_words(ended)
            if ended.status is not None and ended.status > 0:
                words = f"{words}: {last_words(ended.stderr)}"
            attempts.append(ReleaseAttempt(way, words, ended.status, round(ended.seconds, 3), survived))
            if survived:
                return ReleaseTrial(way, attempts)
    return ReleaseTrial(None, attempts)


def measure_starts(*, python: str = sys.executable) -> StartCosts:
    """Each in a process that has loaded torch and recorded nothing yet."""
    with tempfile.TemporaryDirectory(prefix="dsv4prof-start-") as scratch:
        found = []
        for half in ("plain", "ours"):
            folder = Path(scratch) / half
            run_fresh(cost.NAME, half, folder, _PATIENCE_S, python=python)
            found.append(cost.read(folder))
    return StartCosts(*found)
