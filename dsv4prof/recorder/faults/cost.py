"""A process's first profiler starts slowly, later ones do not: a cost that falls into somebody's first window.

Most of it is no work of the profiler: torch 2.13 imports its compiler when the first profiler is made ready.
"""

from __future__ import annotations

import time
from pathlib import Path

import msgspec

from dsv4prof.recorder.faults.fault import Program
from dsv4prof.recorder.faults.ours import plan
from dsv4prof.recorder.faults.work import profiler, work

NAME = "slow-first-start"
FILE = "cost.json"


class StartCost(msgspec.Struct, frozen=True):
    """Seconds between the wish to record and the first recorded operator, in a fresh process and again later."""

    first_s: float
    later_s: float


def read(folder: Path) -> StartCost | None:
    """What a half has measured; None when it did not get so far."""
    try:
        return msgspec.json.decode((folder / FILE).read_bytes(), type=StartCost)
    except (OSError, msgspec.DecodeError):
        return None


def _plain(folder: Path) -> None:
    def start() -> float:
        began = time.perf_counter()
        one = profiler()
        one.start()
        took = time.perf_counter() - began
        work()
        one.stop()
        return took

    _write(folder, StartCost(start(), start()))


def _ours(folder: Path) -> None:
    """The boundary at which a window opens: what its program waits for in its run."""
    from dsv4prof.recorder.standalone import record

    def start() -> float:
        with record(plan(wait=1, active=1), root=folder) as recorder:
            work()
            began = time.perf_counter()
            recorder.step()
            took = time.perf_counter() - began
            work()
            recorder.step()
        return took

    _write(folder, StartCost(start(), start()))


def _write(folder: Path, cost: StartCost) -> None:
    (folder / FILE).write_bytes(msgspec.json.encode(cost))


PROGRAMS: dict[str, Program] = {"plain": _plain, "ours": _ours}
