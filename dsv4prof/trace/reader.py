"""Odd events -> canonical text, tracks and counts: what the scanner leaves, one at a time, and never an error.

One odd value costs its event or itself: a recording of eight ranks must not be lost to a kernel without a name.
"""

from __future__ import annotations

from collections import Counter as Tally

import msgspec

from dsv4prof.model.event import Track
from dsv4prof.trace.canonical import canonical
from dsv4prof.trace.counters import numeric
from dsv4prof.trace.pairs import Edge, pair
from dsv4prof.trace.tracks import TrackTable
from dsv4prof.trace.vendor import GPU_CATEGORIES
from dsv4prof.trace.wire import NOT_JSON, SHALLOW, WireEvent, nanoseconds, too_deep

_NULL = msgspec.Raw(b"null")
_OBJECT_START = ord("{")
_SCOPES = ("t", "p", "g")


class EventReader:
    """Sorts events by phase letter; `dropped` counts by reason what fits none."""

    def __init__(self) -> None:
        self.edges: dict[Track, list[Edge]] = {}
        self.table = TrackTable()
        self.dropped: Tally[str] = Tally()
        self.notes: set[str] = set()

    def take(self, event: WireEvent) -> bytes | None:
        """The event as canonical text; None when it says something of a track, waits for its partner or is left out."""
        ph = event.ph
        if ph == "M":
            self.describe(event)
            return None
        at_ns = nanoseconds(event.ts)
        if at_ns is None or at_ns < 0:
            self.dropped["no valid time" if at_ns is None else "negative time"] += 1
            return None
        place = (event.pid, event.tid)
        args = self._arguments(event.args)
        if ph == "X":
            return self._slice(event, at_ns, args)
        if ph in ("s", "t", "f"):
            if event.id is None:
                self.dropped["flow without an id"] += 1
                return None
            binding = "e" if event.bp == "e" else None
            return canonical(ph, event.name, event.cat, place, at_ns, id=event.id, binding=binding)
        if ph in ("i", "I"):
            scope = event.s if event.s in _SCOPES else "t"
            return canonical("i", event.name, event.cat, place, at_ns, scope=scope, args=args)
        if ph == "C":
            return self._counter(event, at_ns, args)
        if ph in ("b", "n", "e") and event.id is not None:
            return canonical(ph, event.name, event.cat, place, at_ns, id=event.id, args=args)
        if ph in ("B", "E"):
            edge = Edge(ph == "B", at_ns, event.name, event.cat, args)
            self.edges.setdefault(Track(*place), []).append(edge)
            return None
        self.dropped[f"phase {ph!r} is not one that torch writes"] += 1
        return None

    def close(self) -> list[bytes]:
        """What is known only at the end of the file: the slices of which begin and end were two events."""
        slices, lost = pair(self.edges)
        self.dropped.update(lost)
        self.edges.clear()
        return [
            canonical(
                "X", s.name, s.category, (s.track.pid, s.track.tid), s.start_ns, dur_ns=s.dur_ns, args=s.args
            )
            for s in slices
        ]

    def describe(self, event: WireEvent) -> None:
        """Take a metadata event (phase M)."""
        try:
            self.table.describe(event)
        except (*NOT_JSON, ValueError):
            self.dropped["name or order of a track that cannot be read"] += 1

    def _arguments(self, args: msgspec.Raw) -> msgspec.Raw | None:
        """Arguments are an object or absent: what a viewer or an analysis would stumble over does not get in."""
        size = len(args)
        if not size:
            return None
        if memoryview(args)[0] == _OBJECT_START and (size <= SHALLOW or not too_deep(args)):
            return args
        if args != _NULL:
            self.dropped["arguments that are no object, or nested too deep; their event was kept"] += 1
        return None

    def _slice(self, event: WireEvent, at_ns: int, args: msgspec.Raw | None) -> bytes | None:
        dur_ns = nanoseconds(event.dur)
        if dur_ns is None:
            self.dropped["slice without a valid duration"] += 1
        elif dur_ns < 0:
            self.dropped["slice with a negative duration"] += 1
        elif at_ns == 0 and dur_ns == 0 and event.cat in GPU_CATEGORIES:
            self.dropped["GPU record without a time (time 0)"] += 1
        else:
            return canonical(
                "X", event.name, event.cat, (event.pid, event.tid), at_ns, dur_ns=dur_ns, args=args
            )
        return None

    def _counter(self, event: WireEvent, at_ns: int, args: msgspec.Raw | None) -> bytes | None:
        numbers, odd = numeric(args or b"")
        if odd:
            self.dropped["counter value that is no number"] += odd
        if numbers is None:
            return None
        return canonical("C", event.name, event.cat, (event.pid, event.tid), at_ns, args=numbers)
