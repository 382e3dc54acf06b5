"""A recording that nobody stops fills the memory and then the disk: every window has a budget, looked at between steps.

torch does not tell how many events it holds, but a process grows evenly while it records: 160 to 435 bytes an event
(torch 2.13 on a CPU; 110 to 170 on an H200 with torch 2.11), of which the trace's JSON takes 265 to 375. So the growth
of the process stands for the size; what a program allocates by itself counts against the budget too, on the safe side.
"""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from dsv4prof.model.session import EndedBy
from dsv4prof.recorder.plan import RecordPlan

_MIB = 1 << 20
# The JSON of a window, at most twice its growth, lies on the disk beside its compressed form until that is whole.
_DISK_PER_GROWTH = 2.5


class Grown(Protocol):
    @property
    def growth_bytes(self) -> int: ...


@dataclass(frozen=True)
class LimitHit:
    """Which limit ended a window, and a sentence about it."""

    ended_by: EndedBy
    reason: str


class Limits:
    """One plan's limits; `open` begins a window's time and takes the disk's free space into account."""

    def __init__(self, plan: RecordPlan, folder: Path) -> None:
        self._plan = plan
        self._folder = folder
        self._opened = 0.0
        self._most_bytes: float | None = None
        self._why = ""

    def open(self) -> None:
        """A window opens now."""
        self._opened = time.monotonic()
        limit = self._plan.size_limit_mb
        self._most_bytes = limit * _MIB if limit is not None else None
        self._why = f"the size limit of {limit} MiB was reached"
        try:
            room = shutil.disk_usage(self._folder).free / _DISK_PER_GROWTH
        except OSError:
            return
        if self._most_bytes is None or room < self._most_bytes:
            self._most_bytes = room
            self._why = f"the disk's free space would not hold more than {room / _MIB:.0f} MiB of recording"

    def exceeded(self, window: Grown) -> LimitHit | None:
        """The limit that the open window has reached, if any."""
        most_s = self._plan.time_limit_s
        if most_s is not None and time.monotonic() - self._opened >= most_s:
            return LimitHit(EndedBy.TIME_LIMIT, f"the time limit of {most_s:g} s was reached")
        if self._most_bytes is not None and window.growth_bytes > self._most_bytes:
            return LimitHit(EndedBy.SIZE_LIMIT, self._why)
        return None
