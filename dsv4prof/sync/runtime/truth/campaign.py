"""Measure many cases, in child processes: a case that hangs or takes its process down costs itself alone."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from dsv4prof.errors import InputError
from dsv4prof.sync import measured
from dsv4prof.sync.measured import Case, Measurement, Meta, Truth

_POLL_S = 0.1
Command = Callable[[Path, Path], list[str]]


class InterruptedMeasuringError(Exception):
    """Ctrl-C; `truth` holds what was measured before it."""

    def __init__(self, truth: Truth) -> None:
        super().__init__("interrupted")
        self.truth = truth


def child_command(job: Path, out: Path) -> list[str]:
    """How a child is started."""
    return [sys.executable, "-m", "dsv4prof.sync.runtime.truth.child", str(job), str(out)]


def measure_all(
    wanted: measured.CaseFile,
    *,
    sleep_ms: float = 20.0,
    patience_s: float = 120.0,
    say: Callable[[str], None] = lambda _: None,
    command: Command = child_command,
) -> Truth:
    """Every case, in the order given.

    `patience_s` is how long one case (or the start of a child) may take. Raises InputError when a child cannot start,
    InterruptedMeasuringError on Ctrl-C.
    """
    rows: list[Measurement] = []
    meta: Meta | None = None
    left = list(wanted.cases)
    while left:
        child = _Child(wanted.meta, left, sleep_ms=sleep_ms, patience_s=patience_s, command=command, say=say)
        found = child.run(done=len(rows), total=len(wanted.cases))
        meta = meta or found.meta
        if found.interrupted:
            raise InterruptedMeasuringError(Truth(meta or wanted.meta, rows + found.rows))
        if meta is None:
            raise InputError(f"the measuring process did not start: {found.ending}", hint="dsv4prof doctor")
        rows += found.rows
        left = left[len(found.rows) :]
        if left and not found.complete:
            rows.append(_failed(left[0], found.ending))
            say(f"{left[0].id}: {found.ending}; going on in a new process")
            left = left[1:]
    return Truth(meta or wanted.meta, rows)


class _Answer(msgspec.Struct):
    """What one child wrote. `complete`: its last row explains why it ended."""

    meta: Meta | None
    rows: list[Measurement]
    ending: str
    complete: bool
    interrupted: bool = False


class _Child:
    def __init__(
        self,
        meta: Meta,
        cases: list[Case],
        *,
        sleep_ms: float,
        patience_s: float,
        command: Command,
        say: Callable[[str], None],
    ) -> None:
        self._meta = msgspec.structs.replace(meta, format=measured.CASES_FORMAT, sleep_ms=sleep_ms)
        self._cases, self._patience_s, self._command, self._say = cases, patience_s, command, say

    def run(self, *, done: int, total: int) -> _Answer:
        with tempfile.TemporaryDirectory(prefix="dsv4prof-truth-") as folder:
            job, out, log = (Path(folder) / name for name in ("job.jsonl", "out.jsonl", "log"))
            job.write_bytes(measured.encoded(measured.head(self._meta), *self._cases))
            out.touch()
            with log.open("wb") as stderr:
                process = subprocess.Popen(self._command(job, out), stdout=stderr, stderr=stderr)
                hung = interrupted = False
                try:
                    hung = not self._watched(process, out, done, total)
                except KeyboardInterrupt:
                    interrupted = True
                finally:
                    process.kill()
                    status = process.wait()
            meta, rows = _written(out)
            last = log.read_text(errors="replace").strip().splitlines()[-1:]
        complete = bool(rows) and (len(rows) == len(self._cases) or (not hung and bool(rows[-1].error) and status > 0))
        return _Answer(meta, rows, _ending(hung, status, self._patience_s, last), complete, interrupted)

    def _watched(self, process: subprocess.Popen[bytes], out: Path, done: int, total: int) -> bool:
        """Wait for the child's end. False when it has written nothing for too long."""
        size, since, told = 0, time.monotonic(), 0
        while process.poll() is None:
            if out.stat().st_size != size:
                size, since = out.stat().st_size, time.monotonic()
                count = max(0, out.read_bytes().count(b"\n") - 1)
                if count - told >= 50:
                    told = count
                    self._say(f"{done + count} of {total} cases measured")
            elif time.monotonic() - since > self._patience_s:
                return False
            time.sleep(_POLL_S)
        return True


def _written(out: Path) -> tuple[Meta | None, list[Measurement]]:
    """The whole lines of a child; the last one may be cut."""
    text = out.read_bytes()
    whole = text[: text.rfind(b"\n") + 1]
    if not whole:
        return None, []
    out.write_bytes(whole)
    truth = measured.read(out)
    return truth.meta, truth.rows


def _ending(hung: bool, status: int, patience_s: float, last: list[str]) -> str:
    if hung:
        return f"no answer within {patience_s:g} s"
    said = f": {last[0][:200]}" if last else ""
    return (f"its process was ended by signal {-status}" if status < 0 else f"its process ended with {status}") + said


def _failed(case: Case, why: str) -> Measurement:
    return Measurement(**{**msgspec.structs.asdict(case), "error": why})
