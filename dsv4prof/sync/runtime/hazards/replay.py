"""What a sync protects: the same run judged again without the waits of one place.

A wait orders more than it was written for. Nothing in source says what; but the order of everything else in a recorded
run is known, so leaving the wait out and looking which conflicts appear answers it, for what that run exercised.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from functools import lru_cache
from pathlib import Path, PurePath

import msgspec

from dsv4prof.errors import UsageError
from dsv4prof.model.syncs import Frame
from dsv4prof.sync.runtime.hazards.events import HostWaits
from dsv4prof.sync.runtime.hazards.hazard import Hazard, hazards_of
from dsv4prof.sync.runtime.hazards.judge import Conflict, Judge, judge
from dsv4prof.sync.runtime.hazards.log import Log, Total
from dsv4prof.sync.runtime.hazards.sites import Marks

_LOCATION = re.compile(
    r"(?P<file>[^:]+)::?"
    r"(?:(?P<line>\d+)(?:-(?P<last>\d+)|:\d+)?|(?P<function>[A-Za-z_<][\w<>]*(?:(?:\.|::)[A-Za-z_<][\w<>]*)*))"
)


class Place(msgspec.Struct, frozen=True):
    """A line, or all lines of a function or class. `file` is a path or the end of one; `span` the first and last line
    that stand for `line`, where they are more than it.
    """

    file: str
    line: int | None = None
    function: str | None = None
    span: tuple[int, int] | None = None

    @classmethod
    def parse(cls, text: str) -> Place:
        """`metadata.py:88`, `:88:5`, `:88-93`, `:attach_prefill_meta` or `::Class::method`; a module's dotted name does
        for its file. Raises UsageError for anything else.
        """
        match = _LOCATION.fullmatch(text)
        if match is None:
            raise UsageError(f"{text!r} names no place", hint="FILE:LINE or FILE:FUNCTION, such as metadata.py:88")
        file, function = match["file"], match["function"]
        if not file.endswith(".py") and "/" not in file and "." in file:
            file = file.replace(".", "/") + ".py"
        if function:
            return cls(file, None, function.replace("::", ".").replace(".<locals>", ""))
        line, last = int(match["line"]), match["last"]
        return cls(file, line, None, (line, max(line, int(last))) if last else None)

    def __str__(self) -> str:
        return f"{self.file}:{self.line if self.line is not None else self.function}"

    def names(self, file: str) -> bool:
        """Whether a file is the one that is meant."""
        parts = PurePath(file).parts
        return any(_ends(parts, wanted) or _ends(wanted, parts) for wanted in _spellings(self.file))

    def is_in(self, name: str) -> bool:
        """Whether a qualified name is the function's own or lies in it."""
        return f".{self.function}." in f".{name}."

    def fits(self, frame: Frame) -> bool:
        if not self.names(frame.file):
            return False
        if self.line is not None:
            first, last = self.span or (self.line, self.line)
            return first <= frame.line <= last
        return self.is_in(frame.function)


def _ends(path: tuple[str, ...], end: tuple[str, ...]) -> bool:
    """An absolute path is nobody's end."""
    return path[-len(end) :] == end and (len(path) == len(end) or end[0] != "/")


@lru_cache(maxsize=64)
def _spellings(file: str) -> list[tuple[str, ...]]:
    """As it was given, and, where it is a file, its whole path with and without links."""
    path = Path(file).expanduser()
    spelt = [PurePath(file).parts] + ([] if path.suffix else [PurePath(f"{file}.py").parts])
    if len(path.parts) > 1 and path.is_file():
        spelt += [Path(os.path.abspath(path)).parts, path.resolve().parts]  # noqa: PTH100 - resolve() follows links
    return spelt


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
