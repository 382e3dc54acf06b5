"""Columns of events -> packets. What is alike in all of them is built at once, padded to one width."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dsv4prof.trace.columns import Ints
from dsv4prof.trace.perfetto import nesting
from dsv4prof.trace.perfetto.proto import BYTES, VARINT, Bytes, fixed, number, padded, tag, varint, width
from dsv4prof.trace.perfetto.schema import NEEDS_STATE, Event, Kind, Packet, Trace

_LENGTH = 4
_CHUNK = 16_384


class Events(NamedTuple):
    """Events of a rank, one place each. `dur` is -1 for what is no slice; `bodies` are encoded fields of the event."""

    ts: Ints
    dur: Ints
    track: npt.NDArray[np.int32]
    name: npt.NDArray[np.int32]
    category: npt.NDArray[np.int32]
    kind: npt.NDArray[np.uint8]
    size: Ints
    bodies: bytes
    start: Ints | None = None

    @classmethod
    def joined(cls, parts: Sequence[Events]) -> Events:
        """All of them, with the place where each body begins."""
        parts = parts or [cls.none()]
        size = np.concatenate([part.size for part in parts])
        return cls(
            ts=np.concatenate([part.ts for part in parts]),
            dur=np.concatenate([part.dur for part in parts]),
            track=np.concatenate([part.track for part in parts]),
            name=np.concatenate([part.name for part in parts]),
            category=np.concatenate([part.category for part in parts]),
            kind=np.concatenate([part.kind for part in parts]),
            size=size,
            bodies=b"".join(part.bodies for part in parts),
            start=np.cumsum(size) - size,
        )

    @classmethod
    def none(cls) -> Events:
        wide, small = np.zeros(0, np.int64), np.zeros(0, np.int32)
        return cls(wide, wide, small, small, small, np.zeros(0, np.uint8), wide, b"", wide)

    def at(self, places: Ints) -> Events:
        """The events at these places."""
        assert self.start is not None
        return Events(
            ts=self.ts[places],
            dur=self.dur[places],
            track=self.track[places],
            name=self.name[places],
            category=self.category[places],
            kind=self.kind[places],
            size=self.size[places],
            bodies=self.bodies,
            start=self.start[places],
        )

    @property
    def is_slice(self) -> np.ndarray:
        return self.dur >= 0


class Tied(NamedTuple):
    """Encoded flow fields by event: those of event i are fields[start[i]:start[i + 1]]."""

    start: Ints
    fields: bytes


def packets(
    events: Events, order: nesting.Sequence, tied: Tied, uuids: Ints, sequence: int, origin_ns: int
) -> Iterator[bytes]:
    """Every packet of the events, in `order`; `uuids` says what track a place stands for."""
    assert events.start is not None
    if not len(events.ts):
        return
    layout = _Layout(events, uuids, sequence, origin_ns)
    opening, closing = layout.opening(events, tied), layout.closing(events)
    sizes = (opening.shape[1], closing.shape[1])
    opened, closed = opening.tobytes(), closing.tobytes()
    bodies, fields = events.bodies, tied.fields
    for first in range(0, len(order.slot), _CHUNK):
        slots = order.slot[first : first + _CHUNK]
        out: list[bytes] = []
        columns = (slots, order.ends[first : first + _CHUNK], events.start[slots], events.size[slots])
        flows = (tied.start[slots], tied.start[slots + 1])
        for slot, ends, start, size, low, high in zip(*(c.tolist() for c in (*columns, *flows)), strict=True):
            if ends:
                out.append(closed[slot * sizes[1] : (slot + 1) * sizes[1]])
                continue
            out.append(opened[slot * sizes[0] : (slot + 1) * sizes[0]])
            if size:
                out.append(bodies[start : start + size])
            if high > low:
                out.append(fields[low:high])
        yield b"".join(out)


class _Layout:
    """Widths that hold for a whole segment."""

    def __init__(self, events: Events, uuids: Ints, sequence: int, origin_ns: int) -> None:
        self._origin = origin_ns
        self._track = uuids[events.track]
        self._time = width(int((events.ts + np.maximum(events.dur, 0)).max()) + origin_ns)
        self._uuid = width(int(self._track.max()))
        self._iid = width(1 + max(int(events.name.max()), int(events.category.max())))
        self._sequence = number(Packet.SEQUENCE, sequence)
        self._flags = number(Packet.FLAGS, NEEDS_STATE)

    def opening(self, events: Events, tied: Tied) -> Bytes:
        """(n, width): the packets' beginnings up to their bodies. An edge that only ends has no name or category."""
        count = len(events.ts)
        event = np.hstack(
            [
                fixed(tag(Event.TYPE, VARINT), count),
                events.kind[:, None],
                fixed(tag(Event.TRACK, VARINT), count),
                padded(self._track, self._uuid),
                fixed(tag(Event.CATEGORY_IDS, VARINT), count),
                padded(events.category.astype(np.int64) + 1, self._iid),
                fixed(tag(Event.NAME_ID, VARINT), count),
                padded(events.name.astype(np.int64) + 1, self._iid),
            ]
        )
        return self._packet(events.ts + self._origin, event, events.size + np.diff(tied.start))

    def closing(self, events: Events) -> Bytes:
        """(n, width): the packets that end the slices; those of other events are not used."""
        count = len(events.ts)
        event = np.hstack(
            [
                fixed(number(Event.TYPE, Kind.END) + tag(Event.TRACK, VARINT), count),
                padded(self._track, self._uuid),
            ]
        )
        times = events.ts + np.maximum(events.dur, 0) + self._origin
        return self._packet(times, event, np.zeros(count, np.int64))

    def _packet(self, times: Ints, event: Bytes, behind: Ints) -> Bytes:
        count = len(times)
        time = np.hstack([fixed(tag(Packet.TIMESTAMP, VARINT), count), padded(times, self._time)])
        head = np.hstack([time, fixed(self._sequence + self._flags + tag(Packet.TRACK_EVENT, BYTES), count)])
        inner = event.shape[1] + behind
        whole = head.shape[1] + _LENGTH + inner
        return np.hstack(
            [fixed(tag(Trace.PACKET, BYTES), count), padded(whole, _LENGTH), head, padded(inner, _LENGTH), event]
        )


def flow_field(field: int, flow: int) -> bytes:
    """One flow of an event."""
    return varint(field << 3 | 1) + flow.to_bytes(8, "little")
