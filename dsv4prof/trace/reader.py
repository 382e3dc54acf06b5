"""Events as they lie in a file -> the model's slices, points and tracks; what cannot be one is counted, never an error.

One odd value costs its event or itself: a recording of eight ranks must not be lost to a kernel without a name.
"""

from __future__ import annotations

from collections import Counter as Tally

import msgspec

from dsv4prof.model.event import AsyncPoint, Counter, FlowPoint, Instant, Slice, Track
from dsv4prof.trace.counters import numeric
from dsv4prof.trace.pairs import Edge, pair
from dsv4prof.trace.tracks import TrackTable
from dsv4prof.trace.vendor import GPU_CATEGORIES
from dsv4prof.trace.wire import NOT_JSON, SHALLOW, WireEvent, nanoseconds, too_deep

_NULL = msgspec.Raw(b"null")
_OBJECT_START = ord("{")


class EventReader:
    """Sorts events by phase letter into the model's lists, and counts by reason what fits none."""

    def __init__(self, base_ns: int) -> None:
        self.base_ns = base_ns
        self.slices: list[Slice] = []
        self.instants: list[Instant] = []
        self.counters: list[Counter] = []
        self.flows: list[FlowPoint] = []
        self.asyncs: list[AsyncPoint] = []
        self.edges: dict[Track, list[Edge]] = {}
        self.table = TrackTable()
        self.dropped: Tally[str] = Tally()
        self.names: dict[str, str] = {}

    @property
    def kept(self) -> int:
        return len(self.slices) + len(self.instants) + len(self.counters) + len(self.flows) + len(self.asyncs)

    def take(self, event: WireEvent) -> None:
        ph = event.ph
        if ph == "M":
            self._describe(event)
            return
        at_ns = nanoseconds(event.ts)
        if at_ns is None or at_ns < 0:
            self.dropped["no valid time" if at_ns is None else "negative time"] += 1
            return
        track = self.table.track(event.pid, event.tid)
        name = self.names.setdefault(event.name, event.name)
        args = self._arguments(event.args)
        if ph == "X":
            self._slice(event, name, track, at_ns, args)
        elif ph in ("s", "t", "f"):
            self._flow(event, name, track, at_ns + self.base_ns)
        elif ph in ("i", "I"):
            self.instants.append(Instant(name, event.cat, track, at_ns + self.base_ns, event.s, args))
        elif ph == "C":
            self._counter(name, track, at_ns + self.base_ns, args)
        elif ph in ("b", "n", "e") and event.id is not None:
            self.asyncs.append(AsyncPoint(ph, name, event.cat, track, at_ns + self.base_ns, event.id, args))
        elif ph in ("B", "E"):
            edge = Edge(ph == "B", at_ns + self.base_ns, name, event.cat, args)
            self.edges.setdefault(track, []).append(edge)
        else:
            self.dropped[f"phase {ph!r} is not one that torch writes"] += 1

    def close(self) -> None:
        """What is known only at the end of the file: which begins have an end."""
        slices, lost = pair(self.edges)
        self.slices.extend(slices)
        self.dropped.update(lost)

    def _describe(self, event: WireEvent) -> None:
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

    def _slice(self, event: WireEvent, name: str, track: Track, at_ns: int, args: msgspec.Raw | None) -> None:
        dur_ns = nanoseconds(event.dur)
        if dur_ns is None:
            self.dropped["slice without a valid duration"] += 1
        elif dur_ns < 0:
            self.dropped["slice with a negative duration"] += 1
        elif at_ns == 0 and dur_ns == 0 and event.cat in GPU_CATEGORIES:
            self.dropped["GPU record without a time (time 0)"] += 1
        else:
            self.slices.append(Slice(name, event.cat, track, at_ns + self.base_ns, dur_ns, args))

    def _counter(self, name: str, track: Track, at_ns: int, args: msgspec.Raw | None) -> None:
        numbers, odd = numeric(args or b"")
        if odd:
            self.dropped["counter value that is no number"] += odd
        if numbers is not None:
            self.counters.append(Counter(name, track, at_ns, numbers))

    def _flow(self, event: WireEvent, name: str, track: Track, at_ns: int) -> None:
        if event.id is None:
            self.dropped["flow without an id"] += 1
        else:
            self.flows.append(FlowPoint(event.ph, name, event.cat, track, at_ns, event.id, event.bp))
