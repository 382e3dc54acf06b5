"""How a half of a fault is judged: by its end and by its files, and by nothing that it says."""

from __future__ import annotations

import gzip
import json
import signal
from pathlib import Path

import pytest

from dsv4prof.recorder.faults.fault import NOT_HERE, STILL_ALIVE, Expected, Fault
from dsv4prof.recorder.faults.judge import Ended, TraceState, as_expected, judge, last_words, trace_state
from dsv4prof.recorder.faults.work import OPERATOR


def fault(expected: Expected = Expected.TRACE, **changes) -> Fault:
    nothing = {"name": "f", "sentence": "s", "plain": lambda folder: None, "ours": lambda folder: None}
    return Fault(**{**nothing, "expected": expected, "operators": 3, **changes})


def write(path: Path, operators: int = 3) -> Path:
    events = [{"ph": "X", "cat": "cpu_op", "name": OPERATOR, "ts": i, "dur": 1} for i in range(operators)]
    text = json.dumps({"traceEvents": [{"ph": "M", "name": "process_name"}, *events]}).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


def ended(status: int | None, stderr: str = "") -> Ended:
    return Ended(status, 1.23456, stderr)


@pytest.mark.parametrize("name", ["trace.json", "rank0.trace.json.gz"])
def test_a_trace_with_all_its_work_is_whole(tmp_path: Path, name: str) -> None:
    assert trace_state(write(tmp_path / name), 3) is TraceState.WHOLE
    assert trace_state(tmp_path / name, 4) is TraceState.PART


@pytest.mark.parametrize(
    ("content", "state"),
    [
        (b"", TraceState.EMPTY),
        (b'{"traceEvents": [', TraceState.INVALID),
        (b'{"traceEvents": [{"name": "a "quoted" name"}]}', TraceState.INVALID),
        (b'{"traceEvents": [{"name": "a raw \n control"}]}', TraceState.INVALID),
        (b'{"traceEvents": [{"name": "\xff"}]}', TraceState.INVALID),
        (b'{"other": []}', TraceState.INVALID),
        (b'{"traceEvents": []}', TraceState.PART),
    ],
)
def test_what_no_viewer_could_read_is_not_whole(tmp_path: Path, content: bytes, state: TraceState) -> None:
    (tmp_path / "trace.json").write_bytes(content)
    assert trace_state(tmp_path / "trace.json", 1) is state


def test_a_cut_gzip_is_not_whole(tmp_path: Path) -> None:
    path = write(tmp_path / "trace.json.gz")
    path.write_bytes(path.read_bytes()[:-10])
    assert trace_state(path, 1) is TraceState.INVALID


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (None, "hung"),
        (-signal.SIGSEGV, "killed by SIGSEGV"),
        (-signal.SIGABRT, "killed by SIGABRT"),
        (STILL_ALIVE, "still alive"),
        (0, "whole trace"),
        (1, "RuntimeError, whole trace"),
    ],
)
def test_the_end_of_a_process_counts_more_than_its_trace(tmp_path: Path, status: int | None, words: str) -> None:
    write(tmp_path / "trace.json")
    result = judge(fault(), ended(status, "Traceback\nRuntimeError: no"), tmp_path, ours=False)
    assert result.verdict == words
    assert result.survived == (status == 0)
    assert result.seconds == 1.235


@pytest.mark.parametrize("ours", [False, True])
def test_a_regular_end_without_a_trace_is_silence(tmp_path: Path, ours: bool) -> None:
    result = judge(fault(), ended(0, "all is well, the trace was saved"), tmp_path, ours=ours)
    assert (result.verdict, result.survived) == ("trace lost, no error", False)


def test_an_ending_that_the_program_chose_is_no_crash(tmp_path: Path) -> None:
    chosen = fault(endings=(-signal.SIGTERM, 143))
    assert judge(chosen, ended(-signal.SIGTERM), tmp_path, ours=False).verdict == "trace lost"
    write(tmp_path / "trace.json")
    assert judge(chosen, ended(143), tmp_path, ours=True).survived
    assert not judge(chosen, ended(0), tmp_path, ours=True).survived


def test_hidden_files_are_nobodys_result(tmp_path: Path) -> None:
    write(tmp_path / ".rank0.trace.json.part")
    write(tmp_path / ".trace.json")
    assert judge(fault(), ended(0), tmp_path, ours=True).whole_traces == 0


def test_of_two_recordings_both_count(tmp_path: Path) -> None:
    both = fault(traces=1, plain_traces=2)
    write(tmp_path / "a-trace.json")
    assert judge(both, ended(0), tmp_path, ours=False).verdict == "one trace lost, no error"
    assert judge(both, ended(0), tmp_path, ours=True).survived


def test_only_our_error_with_its_status_is_a_clear_one(tmp_path: Path) -> None:
    said = "warning\nerror: the disk is full\nUSDT:2026 profiler_stop"
    assert judge(fault(), ended(2, said), tmp_path, ours=True).verdict == "clear error"
    assert judge(fault(), ended(2, said), tmp_path, ours=True).sentence == "the disk is full"
    assert not judge(fault(), ended(1, said), tmp_path, ours=True).survived
    assert not judge(fault(), ended(2, ""), tmp_path, ours=True).survived
    assert not judge(fault(), ended(2, said), tmp_path, ours=False).survived


@pytest.mark.parametrize(
    ("expected", "trace", "status", "right"),
    [
        (Expected.TRACE, True, 0, True),
        (Expected.TRACE, False, 2, False),
        (Expected.TRACE_AND_ERROR, True, 2, True),
        (Expected.TRACE_AND_ERROR, True, 0, False),
        (Expected.TRACE_AND_ERROR, False, 2, False),
        (Expected.ERROR, False, 2, True),
        (Expected.ERROR, True, 2, False),
        (Expected.ERROR, False, 0, False),
    ],
)
def test_what_is_expected_is_more_than_survival(
    tmp_path: Path, expected: Expected, trace: bool, status: int, right: bool
) -> None:
    if trace:
        write(tmp_path / "trace.json")
    one = fault(expected)
    assert as_expected(one, judge(one, ended(status, "error: no"), tmp_path, ours=True)) is right


def test_what_cannot_be_tried_is_no_failure(tmp_path: Path) -> None:
    result = judge(fault(), ended(NOT_HERE, "this torch has no gloo"), tmp_path, ours=True)
    assert result.verdict == "not tried: this torch has no gloo"
    assert result.survived
    assert as_expected(fault(), result)


def test_the_last_words_of_a_traceback() -> None:
    assert last_words("Traceback\n  File x\nRuntimeError: Trace is already saved.\n\n") == (
        "RuntimeError: Trace is already saved."
    )
    assert last_words("USDT:1 profiler_start\n") is None


def test_the_log_lines_of_torchs_own_code_are_no_last_words() -> None:
    after = "[W1130 02:18:00.04 profiler_kineto.cpp:942] no session\nERROR:2026-11-30 02:58:00 1:1 x.cpp:47] x\n"
    assert last_words("AssertionError: no profiler\n" + after) == "AssertionError: no profiler"
    assert last_words(after) is None
