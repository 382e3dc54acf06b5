"""How a half came out, told from outside: the end of its process, and its trace files read back.

A process that lost its trace says nothing about it, so what it says counts for nothing.
"""

from __future__ import annotations

import gzip
import re
import signal
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import msgspec

from dsv4prof.recorder.faults.fault import NOT_HERE, STILL_ALIVE, Expected, Fault
from dsv4prof.recorder.faults.work import OPERATOR

_ERROR_MARK = "error: "
_LONGEST_SENTENCE = 300
# What torch's and Kineto's C++ write to stderr whatever happens.
_LOG_LINE = re.compile(r"USDT:|\[[WEIF]\d{4} |(?:WARNING|ERROR|INFO):\d{4}-")


class TraceState(Enum):
    """What a file is worth, best first."""

    WHOLE = "whole trace"
    PART = "part of the trace"
    INVALID = "invalid JSON"
    EMPTY = "empty file"


@dataclass(frozen=True)
class Ended:
    """How a process ended: `status` is negative for a signal, None when it had to be killed after its time."""

    status: int | None
    seconds: float
    stderr: str


class HalfResult(msgspec.Struct, frozen=True, kw_only=True):
    """`verdict` in a few words, `sentence` is the error that the program ended with.

    `status` is its exit status, negative for a signal and None for a hang; `seconds` from its first line to its end;
    `whole_traces` counts the files with all its work in them. `survived`: neither killed nor hung nor silent, which is
    a whole trace or an error that says that there is none.
    """

    verdict: str
    status: int | None
    seconds: float
    whole_traces: int
    survived: bool
    sentence: str | None = None

    @property
    def tried(self) -> bool:
        return self.status != NOT_HERE


class _Event(msgspec.Struct):
    name: str = ""
    ph: str = ""


class _Trace(msgspec.Struct):
    traceEvents: list[_Event]


def judge(fault: Fault, ended: Ended, folder: Path, *, ours: bool) -> HalfResult:
    """What the process that ran `fault`'s half in `folder` came to."""
    states = [trace_state(path, fault.operators) for path in trace_files(folder)]
    whole = states.count(TraceState.WHOLE)
    wanted = fault.traces if ours else fault.plain_traces or fault.traces
    sentence = last_words(ended.stderr) if ended.status not in (None, *fault.endings) else None
    clear = ours and ended.status == 2 and sentence is not None
    regular = ended.status in fault.endings
    return HalfResult(
        verdict=_verdict(fault, ended, _traces(states, wanted), clear=clear, sentence=sentence),
        status=ended.status,
        seconds=round(ended.seconds, 3),
        whole_traces=whole,
        survived=ended.status == NOT_HERE or clear or (regular and whole >= wanted),
        sentence=sentence,
    )


def as_expected(fault: Fault, result: HalfResult) -> bool:
    """Whether ours came out as the table of faults demands; `survived` allows an error in place of a trace."""
    whole, regular = result.whole_traces >= fault.traces, result.status in fault.endings
    error = result.status == 2 and result.sentence is not None
    return not result.tried or {
        Expected.TRACE: whole and regular,
        Expected.TRACE_AND_ERROR: whole and error,
        Expected.ERROR: error and not result.whole_traces,
    }[fault.expected]


def trace_state(path: Path, operators: int) -> TraceState:
    """Read a trace back as a viewer would: all of it has to be JSON, with at least `operators` events of the work."""
    data = path.read_bytes()
    if not data:
        return TraceState.EMPTY
    try:
        text = gzip.decompress(data) if path.suffix == ".gz" else data
        trace = msgspec.json.decode(text, type=_Trace)
    except (msgspec.DecodeError, UnicodeDecodeError, OSError, EOFError, zlib.error):
        return TraceState.INVALID
    found = sum(event.name == OPERATOR and event.ph == "X" for event in trace.traceEvents)
    return TraceState.WHOLE if found >= operators else TraceState.PART


def trace_files(folder: Path) -> list[Path]:
    """What a program has left as traces. Hidden files are nobody's results."""
    return [
        path
        for path in sorted(folder.rglob("*trace*.json*"))
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    ]


def _traces(states: Iterable[TraceState], wanted: int) -> str | None:
    """None when all that was wanted is there."""
    best = sorted(states, key=list(TraceState).index)[:wanted]
    if len(best) < wanted:
        return "trace lost" if not best else "one trace lost"
    return None if best[-1] is TraceState.WHOLE else best[-1].value


def _verdict(fault: Fault, ended: Ended, lack: str | None, *, clear: bool, sentence: str | None) -> str:
    status = ended.status
    trace = lack or TraceState.WHOLE.value
    if status in fault.endings:
        return trace if lack is None or fault.endings != (0,) else f"{trace}, no error"
    if status is None or status < 0:
        return ended_words(ended)
    if status == NOT_HERE:
        return f"not tried: {sentence}"
    if status == STILL_ALIVE:
        return "still alive"
    if clear:
        return f"{trace} and a clear error" if lack is None else "clear error"
    kind = (sentence or "no message").split(":")[0]
    return f"{kind}, {trace}"


def ended_words(ended: Ended) -> str:
    """How a process ended, where that says enough."""
    if ended.status is None:
        return "hung"
    if ended.status >= 0:
        return f"exit status {ended.status}"
    try:
        return f"killed by {signal.Signals(-ended.status).name}"
    except ValueError:
        return f"killed by signal {-ended.status}"


def last_words(stderr: str) -> str | None:
    """The last error line of a process: ours, or the last of a traceback."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip() and not _LOG_LINE.match(line)]
    marked = [line.removeprefix(_ERROR_MARK) for line in lines if line.startswith(_ERROR_MARK)]
    chosen = marked or lines
    return chosen[-1][:_LONGEST_SENTENCE] if chosen else None
