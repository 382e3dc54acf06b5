"""Every known fault of torch's profiler, plain torch against dsv4prof: the table, and what it has to say.

Each half is judged by the exit status of its process and by its files. `pytest -s` prints the table. OTHER_TORCH_PYTHON
names the Python of another environment for the slow test.
"""

from __future__ import annotations

import os
import subprocess

import pytest

pytest.importorskip("torch")

import torch

from dsv4prof.recorder.faults import FAULTS, FaultResult, run_faults
from dsv4prof.recorder.faults.judge import as_expected
from dsv4prof.recorder.faults.trial import measure_starts, try_releases
from dsv4prof.report.table import aligned

# A minute and a half, and what it tries through this package the other files of this folder try as well.
pytestmark = pytest.mark.slow

CRASH = {"killed by SIGSEGV", "killed by SIGABRT", "killed by SIGBUS"}
# Measured on torch 2.13.0 (CPU). A signal handler and control characters in a name do no harm there.
MEASURED = {
    "stop-twice": CRASH,
    "nested": CRASH,
    "other-thread": CRASH,
    "handler-raises": CRASH,
    "crossed-stops": CRASH,
    "dropped-running": CRASH,
    "exit-recording": CRASH,
    "sys-exit": {"trace lost"},
    "exception": {"trace lost"},
    "sigterm": {"trace lost"},
    "sigint": {"trace lost"},
    "export-twice": {"RuntimeError, whole trace"},
    "export-again": {"RuntimeError, trace lost"},
    "missing-directory": {"trace lost, no error"},
    "full-disk": {"invalid JSON, no error", "empty file, no error"},
    "quote-in-name": {"invalid JSON, no error"},
    "metadata": {"invalid JSON, no error"},
    "fork-exits": {"hung"},
    "fork-profiles": {"hung"},
    "rank-fails": {"hung"},
    "late-destruction": {"still alive"},
    "frozen-heap": {"still alive"},
}


def _show(title: str, results: list[FaultResult]) -> None:
    rows = [["fault", title, "dsv4prof"]]
    rows += [[result.sentence, result.plain.verdict, _with_sentence(result)] for result in results]
    print("\n" + "\n".join(aligned(rows, [False] * 3)))


def _with_sentence(result: FaultResult) -> str:
    return result.ours.verdict + (f": {result.ours.sentence}" if result.ours.sentence else "")


@pytest.fixture(scope="module")
def table() -> dict[str, FaultResult]:
    results = run_faults()
    _show(f"torch {torch.__version__}", results)
    return {result.name: result for result in results}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_ours_ends_in_a_whole_trace_or_a_clear_error(table: dict[str, FaultResult], fault) -> None:
    result = table[fault.name]
    assert result.survived, result.ours
    assert as_expected(fault, result.ours), result.ours


@pytest.mark.timeout(600)
@pytest.mark.skipif(not torch.__version__.startswith("2.13."), reason="measured on torch 2.13")
@pytest.mark.parametrize("name", MEASURED)
def test_plain_torch_shows_what_was_measured(table: dict[str, FaultResult], name: str) -> None:
    assert table[name].plain.verdict in MEASURED[name], table[name].plain
    assert not table[name].plain.survived


@pytest.mark.timeout(600)
@pytest.mark.skipif(not torch.__version__.startswith("2.13."), reason="measured on torch 2.13")
def test_two_starts_at_once_do_plain_torch_no_good(table: dict[str, FaultResult]) -> None:
    """Two threads race: it crashes, or one of the two traces is lost."""
    assert not table["two-starts"].plain.survived


def test_a_release_survives_here() -> None:
    trial = try_releases()
    assert trial.recommended == "collect", trial


def test_the_first_start_is_paid_before_the_window() -> None:
    """Seconds in plain torch, once in a process; the first window of ours opens as fast as any."""
    costs = measure_starts()
    assert costs.plain is not None and costs.ours is not None
    print(f"\nfirst start {costs.plain.first_s:.2f} s, later {costs.plain.later_s * 1e3:.2f} ms;"
          f" first window of ours {costs.ours.first_s * 1e3:.1f} ms")  # fmt: skip
    assert costs.ours.first_s < costs.plain.first_s / 3


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_another_torch() -> None:
    """The same table in the environment of OTHER_TORCH_PYTHON: ours survives there as well."""
    python = os.environ.get("OTHER_TORCH_PYTHON")
    if not python:
        pytest.skip("OTHER_TORCH_PYTHON names no Python")
    ask = [python, "-c", "import torch; print(torch.__version__)"]
    version = subprocess.run(ask, capture_output=True, text=True, check=True).stdout.split()[-1]
    results = run_faults(python=python)
    _show(f"torch {version}", results)
    failed = [
        (fault.name, result.ours)
        for fault, result in zip(FAULTS, results, strict=True)
        if not (result.survived and as_expected(fault, result.ours))
    ]
    assert not failed
