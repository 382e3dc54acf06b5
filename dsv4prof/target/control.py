"""Ending ranks together: a rank that stops alone leaves the others waiting in a collective.

Whoever wants the run to end asks in a file. Rank 0 sees it between two steps and writes down which step will be the
last before it makes that step; no other rank can finish a step without rank 0, so all have read it before they would
begin another one.
"""

from __future__ import annotations

import signal
from pathlib import Path
from types import FrameType

from dsv4prof.recorder.atomic import write_atomic

CTRL_C = "interrupted by Ctrl-C"
# No rank goes on for steps that nobody records any more.
LIMIT_REACHED = "a limit of the plan was reached"
_REQUEST = ".stop-request"
_LAST = ".stop-last"


class RunInterruptedError(Exception):
    """Raised between two steps when the run is to end; `args[0]` says why. Never leaves a rank's process."""


def request_stop(folder: Path, reason: str = CTRL_C) -> None:
    """Ask all ranks of the session to end after a common step."""
    write_atomic(folder / _REQUEST, reason.encode(), durable=False)


def clear_stop(folder: Path) -> None:
    """Remove what the agreement left behind."""
    for name in (_REQUEST, _LAST):
        (folder / name).unlink(missing_ok=True)


class StopControl:
    """One rank's view of the agreement. `boundary` is called before every step, in the same order on all ranks."""

    def __init__(self, folder: Path, rank: int) -> None:
        self._request = folder / _REQUEST
        self._last_file = folder / _LAST
        self._rank = rank
        self._next = 0
        self._last: int | None = None
        self._reason = CTRL_C
        self._terminated: str | None = None

    @property
    def steps_begun(self) -> int:
        """Steps that this rank has begun; 0 while everything can still be refused."""
        return self._next

    def terminate(self, reason: str) -> None:
        """End this rank alone before its next step. Only sets a flag: for signal handlers."""
        self._terminated = reason

    def boundary(self) -> None:
        """Raises RunInterruptedError when the step that would begin now must not."""
        if self._terminated is not None:
            raise RunInterruptedError(self._terminated)
        if self._last is None:
            self._last = self._agree() if self._rank == 0 else self._read()
        if self._last is not None and self._next > self._last:
            raise RunInterruptedError(self._reason)
        self._next += 1

    def _agree(self) -> int | None:
        try:
            self._reason = self._request.read_text() or CTRL_C
        except FileNotFoundError:
            return None
        write_atomic(self._last_file, f"{self._next} {self._reason}".encode())
        return self._next

    def _read(self) -> int | None:
        try:
            last, _, self._reason = self._last_file.read_text().partition(" ")
        except FileNotFoundError:
            return None
        return int(last)


def obey(control: StopControl, *numbers: signal.Signals) -> None:
    """From now on these signals end this rank before its next step, with what it has recorded."""

    def terminate(number: int, frame: FrameType | None) -> None:
        control.terminate(f"ended by {signal.Signals(number).name}")

    for number in numbers:
        signal.signal(number, terminate)
