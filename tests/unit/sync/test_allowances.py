"""Intended syncs: what an allowance covers, how often, and that it needs a reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsv4prof.errors import UsageError
from dsv4prof.model.finding import Finding, Location, Severity
from dsv4prof.sync.allowances import Allowance, allow, parse_allowance, parse_allowances
from dsv4prof.sync.trace import host_reads
from traces import Event, call, frame, kernel, merged, note

WAIT = parse_allowance("DSV106@read_*=1: results, of a step")


def _finding(function: str, per_step: float | None = 1.0, code: str = "DSV106") -> Finding:
    return Finding(
        code=code,
        severity=Severity.WARNING,
        message="wait for an event",
        location=Location("a.py", function=function),
        evidence={"per_step": per_step},
        fingerprint=function,
    )


def test_an_allowance_is_code_place_number_and_reason() -> None:
    assert Allowance("DSV106", "read_*", "results, of a step", 1.0) == WAIT
    assert parse_allowance("dsv101@accept: the length").per_step == 1.0
    assert [a.where for a in parse_allowances("DSV106@a=2: x; DSV101@b: y")][:2] == ["a", "b"]


@pytest.mark.parametrize(
    "text", ["DSV106", "DSV106@", "106@x: y", "DSV106@x=1", "DSV106@x:", "DSV206@x: y", "DSV106@x=-1: y"]
)
def test_what_cannot_be_understood_or_has_no_reason_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_allowance(text)
    assert "DSV106@read_tokens=1" in (refused.value.hint or "")


def test_an_intended_site_is_a_note_and_comes_last() -> None:
    intended, accidental = allow([_finding("read_tokens"), _finding("accept")], [WAIT])[::-1]
    assert (intended.severity, intended.evidence["allowed_by"]) == (Severity.NOTE, "results, of a step")
    assert accidental == _finding("accept")


def test_more_than_allowed_stays_a_finding() -> None:
    (finding,) = allow([_finding("read_tokens", 3.0)], [WAIT])
    assert (finding.severity, finding.evidence["allowed_per_step"]) == (Severity.WARNING, 1.0)
    assert "allowed_by" not in finding.evidence


def test_sites_share_one_allowance() -> None:
    first, second = allow([_finding("read_tokens"), _finding("read_lengths")], [WAIT])
    assert first.location is not None
    assert (first.location.function, second.evidence["allowed_by"]) == ("read_lengths", "results, of a step")
    assert "allowed_by" not in first.evidence


def test_another_code_at_the_same_place_is_no_matter_of_the_allowance() -> None:
    assert allow([_finding("read_tokens", code="DSV101")], [WAIT]) == [_finding("read_tokens", code="DSV101")]


def _step(n: int, waits: int) -> list[Event]:
    at = n * 1000
    return [
        note(f"dsv4.step#{n} kind=decode requests=1 rows=1", at, 900),
        frame("dsv4_engine/readback.py(80): read", at + 10, 800),
        note("dsv4.span read_tokens", at + 20, 700),
        *(call("cudaEventSynchronize", at + 30 + 50 * k, 20, 9000 + 10 * n + k) for k in range(waits)),
        call("cudaLaunchKernel", at + 850, 5, n + 1),
        kernel("gemm", at + 860, 30, n + 1),
    ]


@pytest.mark.parametrize(("waits", "intended"), [(1, True), (2, False)])
def test_the_engines_one_wait_a_step_is_intended_and_a_second_is_not(
    tmp_path: Path, waits: int, intended: bool
) -> None:
    (finding,) = host_reads(merged(tmp_path, [*_step(0, waits), *_step(1, waits), *_step(2, waits)]))
    assert ("allowed_by" in finding.evidence) is intended
    (bare,) = host_reads(merged(tmp_path, [*_step(0, waits), *_step(1, waits)]), ())
    assert "allowed_by" not in bare.evidence
