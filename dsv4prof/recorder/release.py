"""Release is a promise that can be checked: drop, collect at this known point, then look whether it is really gone."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from dsv4prof.model.session import ReleaseProof
from dsv4prof.recorder.backends import Remains
from dsv4prof.recorder.backends.kept import count_bytes, held_bytes, held_profilers
from dsv4prof.recorder.holders import find_holders, frozen_by_the_program

__all__ = ["held_bytes", "held_profilers", "release_with_proof", "resident_bytes", "trim_heap"]


def release_with_proof(
    drop: Callable[[], Sequence[Remains]], *, keep: bool = False, held_bytes: int = 0, place: str | None = None
) -> ReleaseProof:
    """Call `drop`, collect, and observe through weak references what became of what it dropped.

    The collection runs whether or not automatic collection is disabled, and its pause is in the proof. The C++ results
    are watched through the Python object that owns them (`torch._C._autograd._ProfilerResult`): it dies with them.
    With `keep`, `drop` lets what is left live on purpose, as `held_bytes` bytes: nothing is collected and nobody is
    sought. Where it left nothing, because nothing had been recorded, the proof says freed and not kept.
    """
    rss_before = resident_bytes()
    frozen = frozen_by_the_program()
    remains = drop()
    if keep:
        return _kept_proof(remains, held_bytes, place, frozen, rss_before)
    began = time.perf_counter_ns()
    collected = gc.collect()
    collect_ns = time.perf_counter_ns() - began
    holders: list[str] = []
    note = None
    freed = not any(item.alive for item in remains)
    if not freed:
        holders, note = find_holders(remains)
    trim_heap()
    return ReleaseProof(
        freed=freed,
        holders=holders,
        collect_ns=collect_ns,
        collected_objects=collected,
        frozen_objects=frozen,
        rss_before_bytes=rss_before,
        rss_after_bytes=resident_bytes(),
        note=note,
        place=place,
    )


def resident_bytes() -> int:
    """This process's resident set, bytes."""
    with suppress(OSError):
        # Read at every recorded step: 13 us, against 80 to 220 us by psutil.
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    import psutil

    return int(psutil.Process(os.getpid()).memory_info().rss)


def trim_heap() -> bool:
    """Hand freed pages back to the system: glibc keeps nearly all of a released profiler otherwise. False elsewhere."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return False
    trim.argtypes = [ctypes.c_size_t]
    trim(0)
    return True


def _kept_proof(
    remains: Sequence[Remains], held: int, place: str | None, frozen: int, rss_before: int
) -> ReleaseProof:
    kept = any(item.alive for item in remains)
    if kept:
        count_bytes(held)
    return ReleaseProof(
        freed=not kept,
        holders=[],
        collect_ns=0,
        collected_objects=0,
        frozen_objects=frozen,
        rss_before_bytes=rss_before,
        rss_after_bytes=resident_bytes(),
        kept=kept,
        held_bytes=held if kept else 0,
        place=place,
    )
