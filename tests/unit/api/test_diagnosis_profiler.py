"""The report of `dsv4prof doctor --profiler`, made from facts: what it says, and its exit status."""

from __future__ import annotations

import json

import pytest

from dsv4prof.api import faults as api_faults
from dsv4prof.api.diagnosis import TorchFacts
from dsv4prof.api.faults import fault_report, profiler_doctor
from dsv4prof.errors import LifetimeError, MissingExtraError
from dsv4prof.recorder.environment import Advice
from dsv4prof.recorder.faults import FaultResult, HalfResult
from dsv4prof.recorder.faults.cost import StartCost
from dsv4prof.recorder.faults.trial import ReleaseAttempt, ReleaseTrial, StartCosts
from dsv4prof.report import render

TORCH = TorchFacts(torch="2.13.0", cuda=None, hip=None, devices=[], kineto=True, gloo=True, nccl=False)
STARTS = StartCosts(plain=StartCost(1.7, 0.0005), ours=StartCost(0.002, 0.001))
COLLECT = ReleaseTrial("collect", [ReleaseAttempt("collect", "4 of 4 traces", 0, 5.0, True)])
KEEP = ReleaseTrial(
    "keep",
    [ReleaseAttempt("collect", "killed by SIGSEGV", -11, 5.0, False), ReleaseAttempt("keep", "4 of 4", 0, 5.0, True)],
)
NEITHER = ReleaseTrial(None, [ReleaseAttempt("collect", "hung", None, 180.0, False)])


def half(verdict: str, status: int | None, *, survived: bool) -> HalfResult:
    return HalfResult(verdict=verdict, status=status, seconds=0.1, whole_traces=0, survived=survived)


def row(ours: HalfResult | None = None) -> FaultResult:
    return FaultResult(
        name="stop-twice",
        sentence="stop twice, then export",
        plain=half("killed by SIGSEGV", -11, survived=False),
        ours=ours or half("whole trace and a clear error", 2, survived=True),
    )


def report(faults=(), release=COLLECT, advice=()):
    return fault_report(TORCH, list(faults) or [row()], release, STARTS, advice)


def test_what_survives_is_no_failure() -> None:
    made = report()
    assert made.verdict.exit_code == 0
    text = render(made)
    assert "survives all 1 faults, of which plain torch shows 1" in text
    assert "stop twice, then export  killed by SIGSEGV   whole trace and a clear error" in text
    assert "1.70 s" in text


def test_a_fault_that_ours_does_not_survive_is_named_and_fails() -> None:
    made = report([row(), row(half("hung", None, survived=False))])
    assert made.verdict.exit_code == 1
    assert "does not survive 1 of 2 (stop twice, then export: hung)" in made.verdict.summary


def test_a_release_that_crashes_is_replaced_and_said_how() -> None:
    made = report(release=KEEP)
    assert made.verdict.exit_code == 0
    text = render(made)
    assert "--release keep" in text
    assert "[tool.dsv4prof]" in text
    assert "collect: killed by SIGSEGV" in text
    assert made.next_command == "dsv4prof run --profile --release keep"


def test_where_no_release_survives_the_doctor_fails() -> None:
    made = report(release=NEITHER)
    assert made.verdict.exit_code == 1
    assert "no release" in made.verdict.summary


def test_machines_get_statuses_and_seconds() -> None:
    data = json.loads(render(report(advice=[Advice("cupti-graphs", "a message", "a hint")]), "json"))
    (fault,) = data["faults"]
    assert fault["plain"]["status"] == -11
    assert fault["ours"]["verdict"] == "whole trace and a clear error"
    assert fault["survived"] is True
    assert data["release"]["recommended"] == "collect"
    assert data["torch"]["torch"] == "2.13.0"
    assert data["first_start"]["plain"]["first_s"] == 1.7
    assert data["advice"][0]["code"] == "cupti-graphs"


def test_without_torch_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_faults, "installed", lambda package: None)
    with pytest.raises(MissingExtraError, match=r"pip install 'dsv4prof\[engine\]'"):
        profiler_doctor()


def test_a_torch_that_does_not_import_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_faults, "installed", lambda package: "2.13.0")
    monkeypatch.setattr(api_faults, "probe_torch", lambda: (None, "torch does not import (status 1): no libamdhip64"))
    with pytest.raises(LifetimeError, match="libamdhip64"):
        profiler_doctor()
