"""What becomes of a stopped profiler: dropped, it lives on, and dies wherever a later collection happens to run.

That is the crash of sglang #29202. A later destruction need not crash here; that the profiler outlives its release is
what both halves are asked, through weak references taken while it was alive.
"""

from __future__ import annotations

import gc
import sys
import weakref
from pathlib import Path
from typing import Any

from dsv4prof.recorder.faults.fault import STILL_ALIVE, Expected, Fault
from dsv4prof.recorder.faults.ours import plan
from dsv4prof.recorder.faults.work import TRACE, profiler, save, work


def _stopped(folder: Path) -> tuple[Any, list[weakref.ref[Any]]]:
    one = profiler()
    one.start()
    work()
    one.stop()
    save(one, folder / TRACE)
    return one, [weakref.ref(one), weakref.ref(one.profiler.kineto_results)]


def _dropped_plain(folder: Path) -> None:
    one, watched = _stopped(folder)
    del one
    _leave(watched)


def _frozen_plain(folder: Path) -> None:
    one, watched = _stopped(folder)
    gc.freeze()
    del one
    gc.collect()
    _leave(watched)


def _dropped_ours(folder: Path) -> None:
    from dsv4prof.recorder.standalone import record

    gc.disable()
    with record(plan(), root=folder):
        work()
        watched = _profilers()
    _leave(watched)


def _frozen_ours(folder: Path) -> None:
    from dsv4prof.recorder.standalone import record

    with record(plan(), root=folder):
        work()
        watched = _profilers()
        gc.freeze()
    _leave(watched)


def _profilers() -> list[weakref.ref[Any]]:
    """Weak references to every torch profiler of this process, whoever made it."""
    from torch.profiler import profile

    found = [weakref.ref(each) for each in gc.get_objects() if isinstance(each, profile)]
    assert found, "something records here"
    return found


def _leave(watched: list[weakref.ref[Any]]) -> None:
    if any(reference() is not None for reference in watched):
        sys.exit(STILL_ALIVE)


FAULTS = (
    Fault(
        name="late-destruction",
        sentence="drop a stopped profiler",
        plain=_dropped_plain,
        ours=_dropped_ours,
        expected=Expected.TRACE,
    ),
    Fault(
        name="frozen-heap",
        sentence="drop and collect it after gc.freeze()",
        plain=_frozen_plain,
        ours=_frozen_ours,
        expected=Expected.TRACE,
    ),
)
