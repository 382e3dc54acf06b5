"""Judge many cases in child processes: a case that hangs or takes its process down costs itself alone."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from dsv4prof.errors import InputError, UsageError
from dsv4prof.sync import measured
from dsv4prof.sync.measured import Case, CaseFile, Meta
from dsv4prof.sync.runtime.judging.detector import Where
from dsv4prof.sync.runtime.judging.verdicts import Verdict

_POLL_S = 0.1
_TELL_EVERY = 100
Command = Callable[[Path, Path], list[str]]


class Judged(msgspec.Struct, frozen=True):
    """`interrupted`: Ctrl-C came before the last case."""

    verdicts: list[Verdict]
    interrupted: bool = False


def child_command(where: Where, vendor: str, torch_version: str | None) -> Command:
    """How a child is started."""

    def command(job: Path, out: Path) -> list[str]:
        version = [torch_version] if torch_version else []
        return [
            sys.executable,
            "-m",
            "dsv4prof.sync.runtime.judging.child",
            str(job),
            str(out),
            where,
            vendor,
            *version,
        ]

    return command


def judge_all(
    wanted: CaseFile,
    command: Command,
    *,
    patience_s: float = 120.0,
    say: Callable[[str], None] = lambda _: None,
) -> Judged:
    """Every case in the order given. `patience_s` is how long one case (or the start of a child) may take.

    Raises InputError for two cases of one id, UsageError where a child does not start.
    """
    _refuse_doubles(wanted.cases)
    found: list[Verdict] = []
    left = list(wanted.cases)
    while left:
        with tempfile.TemporaryDirectory(prefix="dsv4prof-judge-") as folder:
            child = _Child(Path(folder), wanted.meta, left, command)
            rows, ending, interrupted = child.run(patience_s, _teller(say, len(found), len(wanted.cases)))
        found += rows
        left = left[len(rows) :]
        if interrupted:
            return Judged(found, interrupted=True)
        if left and ending is not None:
            if not rows and not found and ending.before_any:
                raise UsageError(f"the judging process did not start: {ending.text}", hint="dsv4prof doctor")
            found.append(Verdict(id=left[0].id, syncs=False, error=ending.text))
            say(f"{left[0].id}: {ending.text}; going on in a new process")
            left = left[1:]
    return Judged(found)


class _Ending(msgspec.Struct, frozen=True):
    """Why a child ended early. `before_any`: before its detector was ready for the first case."""

    text: str
    before_any: bool


class _Child:
    def __init__(self, folder: Path, meta: Meta, cases: Sequence[Case], command: Command) -> None:
        self._job, self._out, self._log = (folder / name for name in ("job.jsonl", "out.jsonl", "log"))
        plain = [Case(id=one.id, call=one.call, setup=one.setup, after=one.after, needs=one.needs) for one in cases]
        head = measured.head(Meta(format=measured.CASES_FORMAT, prelude=meta.prelude))
        self._job.write_bytes(measured.encoded(head, *plain))
        self._out.touch()
        self._count, self._command = len(cases), command

    def run(self, patience_s: float, told: Callable[[int], None]) -> tuple[list[Verdict], _Ending | None, bool]:
        with self._log.open("wb") as log:
            process = subprocess.Popen(
                self._command(self._job, self._out), stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
            hung = interrupted = False
            try:
                hung = not self._watched(process, patience_s, told)
            except KeyboardInterrupt:
                interrupted = True
            finally:
                process.kill()
                status = process.wait()
        rows = self._written()
        if interrupted or len(rows) == self._count:
            return rows, None, interrupted
        last = self._log.read_text(errors="replace").strip().splitlines()[-1:]
        said = f": {last[0][:200]}" if last else ""
        if hung:
            return rows, _Ending(f"no answer within {patience_s:g} s", before_any=False), False
        how = f"was ended by signal {-status}" if status < 0 else f"ended with {status}"
        return rows, _Ending(f"its process {how}{said}", before_any=not self._out.stat().st_size), False

    def _watched(self, process: subprocess.Popen[bytes], patience_s: float, told: Callable[[int], None]) -> bool:
        """Wait for the child's end. False when it has written nothing for too long."""
        size, since = 0, time.monotonic()
        while process.poll() is None:
            if self._out.stat().st_size != size:
                size, since = self._out.stat().st_size, time.monotonic()
                told(max(self._out.read_bytes().count(b"\n") - 1, 0))
            elif time.monotonic() - since > patience_s:
                return False
            time.sleep(_POLL_S)
        return True

    def _written(self) -> list[Verdict]:
        """The whole lines; the last one may be cut."""
        text = self._out.read_bytes()
        lines = text[: text.rfind(b"\n") + 1].splitlines()
        return [msgspec.json.decode(line, type=Verdict) for line in lines if line]


def _teller(say: Callable[[str], None], before: int, total: int) -> Callable[[int], None]:
    told = [before // _TELL_EVERY]

    def tell(count: int) -> None:
        if (before + count) // _TELL_EVERY > told[0]:
            told[0] = (before + count) // _TELL_EVERY
            say(f"{before + count} of {total} cases judged")

    return tell


def _refuse_doubles(cases: Sequence[Case]) -> None:
    known: set[str] = set()
    for one in cases:
        if one.id in known:
            raise InputError(f"two cases have the id {one.id!r}", hint="an id names one case, so rename one of them")
        known.add(one.id)
