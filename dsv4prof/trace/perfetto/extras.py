"""Events that belong to no thread: counters, asynchronous spans, instants of a process; each on a track of its own."""

from __future__ import annotations

import struct
from typing import Any

import msgspec
import numpy as np

from dsv4prof.trace.columns import HAS_ID, ID_IS_WORD, OutBlock, SegmentHead
from dsv4prof.trace.counters import numeric
from dsv4prof.trace.perfetto.annotations import AnnotationWriter
from dsv4prof.trace.perfetto.assembly import Events
from dsv4prof.trace.perfetto.proto import FIXED64, message, number, tag
from dsv4prof.trace.perfetto.schema import MERGE_NONE, Event, Kind, Track
from dsv4prof.trace.perfetto.tracks import RankTracks

_KINDS = {"b": Kind.BEGIN, "e": Kind.END, "n": Kind.INSTANT, "i": Kind.INSTANT, "I": Kind.INSTANT}
_INT64 = range(-(2**63), 2**63)
ODD_COUNTER = "counter value that is no number"
NEVER_BEGAN = "end of an asynchronous span without its begin"
UNKNOWN = "event of phase "


class Extras:
    """Makes tracks as they are met. `uuids` are theirs, behind the rank's rows; `dropped` says what was left out."""

    def __init__(self, tracks: RankTracks, head: SegmentHead) -> None:
        self._tracks = tracks
        self._head = head
        self._places: dict[tuple[Any, ...], int] = {}
        self._depth: dict[int, int] = {}
        self._notes: dict[int, list[Any]] = {}
        self.uuids: list[int] = []
        self.dropped: dict[str, int] = {}

    def take(self, block: OutBlock, places: np.ndarray, annotations: AnnotationWriter) -> Events:
        """The events at these places of a block, on tracks of their own."""
        made: list[tuple[int, int, int, int, int, bytes]] = []
        rows = block.rows[places]
        times, tracks = block.ts[places].tolist(), block.place[places].tolist()
        for row, ts, place in zip(rows, times, tracks, strict=True):
            args = block.text[row["args_at"] : row["args_at"] + row["args_len"]]
            ph = chr(row["ph"])
            if ph == "C":
                for track, body in self._counter(row, place, args):
                    made.append((ts, track, row["name"], row["cat"], Kind.COUNTER, body))
            elif ph in _KINDS:
                track = self._async(row, place) if ph in "ben" else self._of_process(row, place)
                if ph == "b":
                    self._depth[track] = self._depth.get(track, 0) + 1
                elif ph == "e" and not self._closes(track):
                    continue
                body = annotations.encode(args) if args else b""
                made.append((ts, track, row["name"], row["cat"], _KINDS[ph], body))
            elif ph != "M":
                self._drop(UNKNOWN + ph)
        return _events(made)

    def lane(self, track: int, rows: int) -> int:
        """The place of one more lane of the row or extra track at `track`."""
        if track < rows:
            row = self._head.tracks[track]
            uuid = self._tracks.lane(row, track)
            self._notes[uuid] = ["lane", row.pid, row.tid]
        else:
            like = self.uuids[track - rows]
            uuid = self._tracks.child("lane", like)
            self._notes[uuid] = self._notes[like]
        self.uuids.append(uuid)
        return rows + len(self.uuids) - 1

    def notes(self) -> dict[str, Any]:
        """What our reader needs to make the same events again, by track."""
        return {"tracks": [[uuid, *content] for uuid, content in self._notes.items()]}

    def _counter(self, row: np.void, place: int, args: bytes) -> list[tuple[int, bytes]]:
        kept, odd = numeric(args)
        if odd:
            self._drop(ODD_COUNTER, odd)
        values = msgspec.json.decode(kept, type=dict[str, float | int | str]) if kept is not None else {}
        name = self._head.words[row["name"]]
        out = []
        for series, value in values.items():
            track = self._track(
                ("counter", self._pid(place), name, series),
                f"{name} {series}".strip(),
                place,
                extra=message(Track.COUNTER, b""),
            )
            out.append((track, _counter_value(value)))
        return out

    def _async(self, row: np.void, place: int) -> int:
        words = self._head.words
        identity: int | str = ""
        if row["flags"] & HAS_ID:
            identity = words[row["id"]] if row["flags"] & ID_IS_WORD else int(row["id"])
        name, category = words[row["name"]], words[row["cat"]]
        return self._track(("async", self._pid(place), category, identity, name), name, place)

    def _of_process(self, row: np.void, place: int) -> int:
        scope = chr(row["scope"])
        name = self._head.words[row["name"]]
        return self._track(("instant", self._pid(place), scope), name, place)

    def _track(self, key: tuple[Any, ...], name: str, place: int, *, extra: bytes = b"") -> int:
        found = self._places.get(key)
        if found is None:
            pid = self._pid(place)
            uuid = self._tracks.child(name, self._tracks.node(pid), extra=extra + number(Track.MERGE, MERGE_NONE))
            self._notes[uuid] = [key[0], pid, self._head.tracks[place].tid, *key[2:]]
            self.uuids.append(uuid)
            found = self._places[key] = len(self._head.tracks) + len(self.uuids) - 1
        return found

    def _pid(self, place: int) -> int:
        return self._head.tracks[place].pid

    def _closes(self, track: int) -> bool:
        depth = self._depth.get(track, 0)
        if depth:
            self._depth[track] = depth - 1
            return True
        self._drop(NEVER_BEGAN)
        return False

    def _drop(self, reason: str, count: int = 1) -> None:
        self.dropped[reason] = self.dropped.get(reason, 0) + count


def _counter_value(value: float | str) -> bytes:
    if isinstance(value, str):
        value = float(value)
    if isinstance(value, int) and value in _INT64:
        return number(Event.COUNTER, value)
    return tag(Event.COUNTER_DOUBLE, FIXED64) + struct.pack("<d", value)


def _events(made: list[tuple[int, int, int, int, int, bytes]]) -> Events:
    ts, track, name, category, kind, bodies = zip(*made, strict=True) if made else ((),) * 6
    return Events(
        ts=np.array(ts, np.int64),
        dur=np.full(len(made), -1, np.int64),
        track=np.array(track, np.int32),
        name=np.array(name, np.int32),
        category=np.array(category, np.int32),
        kind=np.array(kind, np.uint8),
        size=np.array([len(body) for body in bodies], np.int64),
        bodies=b"".join(bodies),
    )
