"""A rank that does not move says nothing: the leader looks into the fault records, and ends a hang in bounded time.

It asks no rank to finish anything, and no device: it reads cells of files, has each rank write its stacks from C code
that needs no lock of Python's, and notes what the kernel says of each process.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from subprocess import Popen

import msgspec

from dsv4prof.errors import InputError
from dsv4prof.faultrecord.layout import SUFFIX, Cell
from dsv4prof.faultrecord.reader import read_progress
from dsv4prof.recorder.atomic import write_atomic
from dsv4prof.sync.runtime.faultwatch.watchdog import STACKS_SUFFIX, stacks_signal

HANG_NAME = "hang.json"
_LOOK_S = 0.25
_STACKS_PATIENCE_S = 3.0
_STATES = {
    "R": "running on a CPU",
    "S": "waiting",
    "D": "waiting in the kernel, not to be interrupted",
    "T": "stopped by a signal",
    "t": "stopped by a debugger",
    "Z": "dead",
}


class HungRank(msgspec.Struct, frozen=True):
    """What the leader saw of one rank: `still_s` is how long nothing moved, `stacks` whether it wrote them."""

    rank: int
    pid: int
    state: str
    wait: str
    in_step: bool
    still_s: float
    stacks: bool


class HangNote(msgspec.Struct, frozen=True):
    """A hang as the leader ended it, in the session's `hang.json`."""

    timeout_s: float
    wall_ns: int
    ranks: list[HungRank]


def read_hang(folder: Path) -> HangNote | None:
    """The note of a session that hung. Raises InputError for a damaged one."""
    path = folder / HANG_NAME
    try:
        return msgspec.json.decode(path.read_bytes(), type=HangNote) if path.is_file() else None
    except msgspec.DecodeError as error:
        raise InputError(f"{path} cannot be read: {error}", hint="delete it; the fault records stay") from error


class HangWatch:
    """Looks at running ranks. A rank within a step in which nothing moves for `timeout_s` is a hang of the run."""

    def __init__(self, folder: Path, ranks: Sequence[Popen[bytes]], *, timeout_s: float) -> None:
        self._folder = folder
        self._ranks = ranks
        self._timeout_s = timeout_s
        self._seen: dict[int, tuple[object, float]] = {}
        self._in_step: dict[int, bool] = {}
        self._looked = 0.0
        self.hung = False

    def hangs(self, now: float) -> bool:
        """Whether the run hangs; then, once, everything about it is noted. `now` is monotonic, seconds."""
        if self.hung or now - self._looked < _LOOK_S:
            return False
        self._looked = now
        for rank in range(len(self._ranks)):
            self._look(rank, now)
        alive = [rank for rank, process in enumerate(self._ranks) if process.poll() is None]
        self.hung = any(self._in_step.get(rank) and self._still(rank, now) > self._timeout_s for rank in alive)
        if self.hung:
            self._note(now)
        return self.hung

    def _look(self, rank: int, now: float) -> None:
        progress = read_progress(self._folder / f"rank{rank}{SUFFIX}")
        if progress is None:
            return
        cells, streams = progress
        self._in_step[rank] = cells[Cell.STEP] > cells[Cell.STEPS_DONE] and not cells[Cell.ENDED]
        moving = (cells[Cell.LAST], cells[Cell.RETURNED], streams)
        if rank not in self._seen or self._seen[rank][0] != moving:
            self._seen[rank] = (moving, now)

    def _still(self, rank: int, now: float) -> float:
        return now - self._seen[rank][1] if rank in self._seen else 0.0

    def _note(self, now: float) -> None:
        alive = {rank: process for rank, process in enumerate(self._ranks) if process.poll() is None}
        # Before the signal: what a process waits for is another thing while it writes its stacks.
        states = {rank: _state(process.pid) for rank, process in alive.items()}
        number = stacks_signal()
        if number is not None:
            for process in alive.values():
                process.send_signal(number)
        deadline = time.monotonic() + _STACKS_PATIENCE_S
        waiting = {rank for rank in alive if states[rank][0] not in "TtZ"}
        while time.monotonic() < deadline and any(not self._wrote(rank) for rank in waiting):
            time.sleep(0.05)
        ranks = [
            HungRank(
                rank,
                process.pid,
                _STATES.get(states[rank][0], states[rank][0]),
                states[rank][1],
                self._in_step.get(rank, False),
                round(self._still(rank, now), 3),
                self._wrote(rank),
            )
            for rank, process in alive.items()
        ]
        write_atomic(self._folder / HANG_NAME, msgspec.json.encode(HangNote(self._timeout_s, time.time_ns(), ranks)))

    def _wrote(self, rank: int) -> bool:
        path = self._folder / f"rank{rank}{STACKS_SUFFIX}"
        return path.is_file() and path.stat().st_size > 0


def _state(pid: int) -> tuple[str, str]:
    """The process's state letter, and what it waits for in the kernel; blank where the system does not say."""
    try:
        letter = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return "?", ""
    try:
        wait = Path(f"/proc/{pid}/wchan").read_text().strip()
    except OSError:
        wait = ""
    return letter, "" if wait == "0" else wait
