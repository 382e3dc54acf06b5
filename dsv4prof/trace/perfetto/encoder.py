"""A rank of a merged trace in Perfetto's own format: track events on nested tracks, exact nanoseconds, nothing dropped.

An end closes what its track opened last, so the order of packets matters among equal times and a rank is written when
all of it is known. Until then an event takes some 45 bytes and its encoded arguments.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dsv4prof.model.trace import Dropped, MergedTrack
from dsv4prof.trace.columns import OutBlock, SegmentHead
from dsv4prof.trace.perfetto.annotations import AnnotationWriter
from dsv4prof.trace.perfetto.assembly import Events, packets
from dsv4prof.trace.perfetto.extras import Extras
from dsv4prof.trace.perfetto.flows import FlowPoints, tie_flows
from dsv4prof.trace.perfetto.nesting import begin_order, crossing_tracks, sequence
from dsv4prof.trace.perfetto.packets import interned, note
from dsv4prof.trace.perfetto.schema import Interned, Kind
from dsv4prof.trace.perfetto.tracks import RankTracks

_KIND = np.zeros(256, np.uint8)
for _letter, _kind in (("X", Kind.BEGIN), ("i", Kind.INSTANT), ("I", Kind.INSTANT), ("B", Kind.BEGIN), ("E", Kind.END)):
    _KIND[ord(_letter)] = _kind
_FLOW = np.zeros(256, bool)
_FLOW[[ord(letter) for letter in "stf"]] = True
_ON_THREAD = ord("t")


class PftraceEncoder:
    """Writes one rank's events as packets (columns.SegmentEncoder). Segments of ranks follow each other in any order.

    `block` gives nothing; `end` gives all, and `pieces` the same in pieces. Counters, asynchronous spans and instants
    of a whole process get tracks of their own. `left_out` says what could not be written, once the end is.
    """

    def __init__(self, head: SegmentHead) -> None:
        self._head = head
        self._sequence = head.rank + 1
        self._tracks = RankTracks(head.rank, head.tracks)
        self._extras = Extras(self._tracks, head)
        self._annotations = AnnotationWriter()
        self._events: list[Events] = []
        self._flows: list[FlowPoints] = []
        self._dropped: dict[str, int] = {}

    @property
    def left_out(self) -> list[Dropped]:
        return [Dropped(count, reason) for reason, count in sorted(self._dropped.items())]

    def begin(self) -> bytes:
        """The tracks of the rank, and a note for our reader of the rows that they stand for."""
        rows = [
            [uuid, row.pid, row.tid, *_shown(row)]
            for uuid, row in zip(self._tracks.of_row, self._head.tracks, strict=True)
        ]
        return self._tracks.described() + note({"rank": self._head.rank, "rows": rows})

    def block(self, block: OutBlock) -> bytes:
        """Keep the events of a block: their columns, and their arguments encoded."""
        ph = block.rows["ph"]
        flows = _FLOW[ph]
        if flows.any():
            self._flows.append(FlowPoints.of(block, flows))
        plain = (_KIND[ph] > 0) & ((block.rows["scope"] == _ON_THREAD) | (_KIND[ph] != Kind.INSTANT))
        if plain.any():
            self._events.append(self._plain(block, np.flatnonzero(plain)))
        others = np.flatnonzero(~plain & ~flows)
        if len(others):
            self._events.append(self._extras.take(block, others, self._annotations))
        return b""

    def end(self) -> bytes:
        """The whole segment."""
        return b"".join(self.pieces())

    def pieces(self) -> Iterator[bytes]:
        """The segment in pieces of a megabyte or so: strings, tracks found on the way, events by time."""
        events = Events.joined(self._events)
        self._events = []
        for reason, count in self._extras.dropped.items():
            self._dropped[reason] = self._dropped.get(reason, 0) + count
        events = events.at(begin_order(events.ts, events.dur, events.track))
        is_slice = events.is_slice
        order = sequence(events.ts, events.dur, is_slice)
        crossing = crossing_tracks(order, events.track, is_slice)
        if crossing:
            self._spread(events, crossing)
            events = events.at(begin_order(events.ts, events.dur, events.track))
            is_slice = events.is_slice
            order = sequence(events.ts, events.dur, is_slice)
        tied, lost, names = tie_flows(FlowPoints.joined(self._flows), events, self._head.words)
        self._flows = []
        if lost:
            self._dropped["arrow end outside of every slice"] = lost
        yield self._tracks.described()
        yield note({"rank": self._head.rank, "flows": names, **self._extras.notes()})
        yield from interned(self._sequence, self._strings(events))
        uuids = np.array([*self._tracks.of_row, *self._extras.uuids], np.int64)
        yield from packets(events, order, tied, uuids, self._sequence, self._head.origin_ns)

    def _plain(self, block: OutBlock, places: np.ndarray) -> Events:
        rows = block.rows[places]
        encode = self._annotations.encode
        bodies = [
            encode(block.text[at : at + size]) if size else b""
            for at, size in zip(rows["args_at"].tolist(), rows["args_len"].tolist(), strict=True)
        ]
        return Events(
            ts=block.ts[places],
            dur=np.where(rows["ph"] == ord("X"), block.dur[places], -1),
            track=block.place[places].astype(np.int32),
            name=rows["name"].copy(),
            category=rows["cat"].copy(),
            kind=_KIND[rows["ph"]],
            size=np.fromiter(map(len, bodies), np.int64, len(bodies)),
            bodies=b"".join(bodies),
        )

    def _spread(self, events: Events, crossing: list[int]) -> None:
        """Move slices that do not nest to lanes made now: the merge plans lanes, other callers may not have."""
        rows = len(self._tracks.of_row)
        for track in crossing:
            own = np.flatnonzero((events.track == track) & events.is_slice)
            stacks: list[list[int]] = []
            tracks: list[int] = []
            for place in own.tolist():
                start, end = int(events.ts[place]), int(events.ts[place] + events.dur[place])
                lane = next((lane for lane, stack in enumerate(stacks) if _nests(stack, start, end)), None)
                if lane is None:
                    lane = len(stacks)
                    stacks.append([])
                    tracks.append(track if not lane else self._extras.lane(track, rows))
                stacks[lane].append(end)
                events.track[place] = tracks[lane]

    def _strings(self, events: Events) -> Iterator[tuple[int, int, str]]:
        words = self._head.words
        for field, used in ((Interned.CATEGORIES, events.category), (Interned.NAMES, events.name)):
            for place in np.unique(used).tolist():
                yield field, place + 1, words[place]
        for name, number in self._annotations.names.items():
            yield Interned.ANNOTATION_NAMES, number, name


def _shown(row: MergedTrack) -> tuple[str | int | None, ...]:
    return row.process_name, row.process_labels, row.process_sort, row.thread_name, row.thread_sort


def _nests(stack: list[int], start: int, end: int) -> bool:
    while stack and stack[-1] <= start:
        stack.pop()
    return not stack or end <= stack[-1]
