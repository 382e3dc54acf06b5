"""What a sync protects: the same run judged again without the waits of one place.

A wait orders more than it was written for. Nothing in source says what; but the order of everything else in a recorded
run is known, so leaving the wait out and looking which conflicts appear answers it, for what that run exercised.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import PurePath

import msgspec

from dsv4prof.errors import UsageError
from dsv4prof.model.syncs import Frame
from dsv4prof.sync.runtime.hazards.events import HostWaits
from dsv4prof.sync.runtime.hazards.hazard import Hazard, hazards_of
from dsv4prof.sync.runtime.hazards.judge import Conflict, Judge, judge
from dsv4prof.sync.runtime.hazards.log import Log, Total
from dsv4prof.sync.runtime.hazards.sites import Marks

_LOCATION = re.compile(r"(?P<file>.+?):(?:(?P<line>\d+)|(?P<function>[A-Za-z_][\w.]*))")


class Place(msgspec.Struct, frozen=True):
    """A line, or all lines of a function. `file` is a path or the end of one."""

    file: str
    line: int | None = None
    function: str | None = None

    @classmethod
    def parse(cls, text: str) -> Place:
        """`metadata.py:88` or `metadata.py:attach_prefill_meta`. Raises UsageError for anything else."""
        match = _LOCATION.fullmatch(text)
        if match is None:
            raise UsageError(f"{text!r} names no place", hint="FILE:LINE or FILE:FUNCTION, such as metadata.py:88")
        line = match["line"]
        return cls(match["file"], int(line) if line else None, match["function"])

    def __str__(self) -> str:
        return f"{self.file}:{self.line if self.line is not None else self.function}"

    def fits(self, frame: Frame) -> bool:
        wanted, parts = PurePath(self.file).parts, PurePath(frame.file).parts
        if parts[-len(wanted) :] != wanted:
            return False
        if self.line is not None:
            return frame.line == self.line
        name = frame.function
        return name == self.function or name.endswith(f".{self.function}")


class Wait(msgspec.Struct, frozen=True):
    """Waits of one stack, innermost frame first."""

    op: str
    stack: tuple[Frame, ...]
    times: int


class Replayed(msgspec.Struct, frozen=True, kw_only=True):
    """A run without the waits of a place.

    `protects` are hazards of other calls that appear; `own` those about what the waiting call itself brings to the
    host, which any replacement has to order as well. `hits` says how often the place was on a stack at all.
    """

    waits: list[Wait]
    hits: int
    protects: list[Hazard]
    own: list[Hazard]
    totals: list[Total]


def without(log: Log, place: Place) -> Replayed:
    """Judge the run again without the waits that were made at the place or in what it calls."""
    sites = {index for index, stack in enumerate(log.sites) if any(place.fits(frame) for frame in stack)}
    left_out: Counter[tuple[str, int]] = Counter()
    hits = 0
    judged = Judge()
    for event in log.events:
        site = getattr(event, "site", None)
        if site in sites:
            hits += 1
            if isinstance(event, HostWaits):
                left_out[event.op, event.site] += 1
                continue
        judged.feed(event)
    before = judge(log.events)
    appeared = [conflict for key, conflict in judged.conflicts.items() if key not in before]
    waiting = {site for _, site in left_out}
    own = [conflict for conflict in appeared if _is_own(conflict, waiting)]
    others = [conflict for conflict in appeared if not _is_own(conflict, waiting)]
    marks = Marks(log.regions or ("",))
    return Replayed(
        waits=[Wait(op, log.sites[site], times) for (op, site), times in left_out.most_common()],
        hits=hits,
        protects=hazards_of(others, log.sites, marks),
        own=hazards_of(own, log.sites, marks),
        totals=[total for total in log.totals if total.site in sites],
    )


def _is_own(conflict: Conflict, waiting: set[int]) -> bool:
    """The copy that waits is the one whose result is read too early."""
    return conflict.first.site in waiting and conflict.trouble == "read-early"
