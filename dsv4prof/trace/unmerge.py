"""A merged file taken apart into the ranks that it was made of, so that it can be analysed and merged again.

Events come back on their own tracks, lanes undone, with absolute times on the common clock.
"""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec

from dsv4prof.errors import InputError
from dsv4prof.model.event import AsyncPoint, Counter, FlowPoint, Instant, Slice, Track
from dsv4prof.model.session import RankCoordinates
from dsv4prof.model.trace import ClockFit, Dropped, MergedTrace, MergedTrack, RankTrace, TrackInfo
from dsv4prof.trace.merge import merge
from dsv4prof.trace.whole import paused_gc, read_head, read_text
from dsv4prof.trace.wire import MAX_NS, NOT_JSON, WireEvent, decode_events, nanoseconds, split_document
from dsv4prof.trace.write import MERGED_SCHEMA

_HEAD_BYTES = 1024


class RankHeader(msgspec.Struct):
    """One rank in that."""

    coordinates: RankCoordinates
    source: str
    base_ns: int
    complete: bool
    dropped: list[Dropped]
    notes: list[str]
    flow_base: int
    rows: list[MergedTrack]
    tracks: list[TrackInfo]
    metadata: dict[str, Any]
    markers: list[Instant] = []


class _Schema(msgspec.Struct):
    schema: str


class MergedHeader(msgspec.Struct):
    """What a merged file says of itself; `origin_ns` is the absolute time of its zero."""

    schema: str
    ranks: list[RankHeader]
    clocks: list[ClockFit]
    missing_ranks: list[int] = []
    unreadable: list[str] = []
    origin_ns: int = 0


def is_ours(path: str | Path) -> bool:
    """Whether a file says at its head that this package merged it, in whatever format. Raises InputError."""
    return MERGED_SCHEMA.encode() in read_head(path, _HEAD_BYTES)


def is_merged(path: str | Path) -> bool:
    """Whether it is one that can be taken apart again. Raises InputError when it cannot be read."""
    head = read_head(path, _HEAD_BYTES)
    return MERGED_SCHEMA.encode() in head and head.lstrip().startswith(b"{")


def read_header(path: str | Path) -> MergedHeader:
    """The head of a merged file, without its events. Raises InputError when it cannot be read."""
    head = b""
    size = _HEAD_BYTES
    while b'"traceEvents":[' not in head:
        size *= 16
        head = read_head(path, size)
        if len(head) < size and b'"traceEvents":[' not in head:
            raise InputError(f"{path} is damaged: its head is cut", hint="merge the rank files again")
    try:
        fields = split_document(head[: head.index(b'"traceEvents":[')] + b'"traceEvents":[]}')
        return _header(fields, path)
    except (*NOT_JSON, KeyError, ValueError) as error:
        raise InputError(f"{path} is damaged: {error}", hint="merge the rank files again") from error


def _header(fields: dict[str, msgspec.Raw], path: str | Path) -> MergedHeader:
    if "dsv4prof" not in fields:
        raise InputError(f"{path} is not a merged trace of dsv4prof", hint="load it as a rank file")
    schema = msgspec.json.decode(fields["dsv4prof"], type=_Schema).schema
    if schema != MERGED_SCHEMA:
        raise InputError(
            f"{path} was merged as {schema}, this version reads {MERGED_SCHEMA}", hint="merge the rank files again"
        )
    header = msgspec.json.decode(fields["dsv4prof"], type=MergedHeader)
    header.origin_ns = msgspec.json.decode(fields["baseTimeNanoseconds"], type=int)
    return header


def load_merged(path: str | Path) -> MergedTrace:
    """Read a file written by `write_chrome_json`. Raises InputError when it is another trace or damaged."""
    return merge(load_merged_ranks(path))


def load_merged_ranks(path: str | Path) -> list[RankTrace]:
    """The ranks inside a merged file, as `load_rank` would give them."""
    try:
        with paused_gc():
            fields = split_document(read_text(Path(path)))
            header = _header(fields, path)
            events, malformed = decode_events(fields["traceEvents"])
            if malformed:
                raise InputError(
                    f"{path} was changed after it was merged: {malformed} malformed events", hint="merge again"
                )
            return _take_apart(events, header, header.origin_ns)
    except (*NOT_JSON, KeyError, ValueError) as error:
        raise InputError(f"{path} is damaged: {error}", hint="merge the rank files again") from error


def _take_apart(events: list[WireEvent], header: MergedHeader, origin_ns: int) -> list[RankTrace]:
    fits = {fit.rank: fit for fit in header.clocks}
    builders = [_Builder(rank, origin_ns, fits[rank.coordinates.rank]) for rank in header.ranks]
    by_pid = {row.pid: builder for builder in builders for row in builder.header.rows}
    for event in events:
        if event.ph != "M":
            by_pid[int(event.pid)].take(event)
    return [builder.trace() for builder in builders]


def _exact(value: Decimal | None) -> int:
    """Two ranks can lie twice as far apart as any time in one file."""
    ns = nanoseconds(value, 2 * MAX_NS)
    if ns is None:
        raise ValueError(f"a time of {value} us")
    return ns


class _Builder:
    def __init__(self, header: RankHeader, origin_ns: int, clock: ClockFit) -> None:
        self.header = header
        self.clock = clock
        self.origin_ns = origin_ns
        shared = {info.track: info.track for info in header.tracks}
        self.source = {(row.pid, row.tid): shared.get(row.source, row.source) for row in header.rows}
        self.slices: list[Slice] = []
        self.instants: list[Instant] = list(header.markers)
        self.counters: list[Counter] = []
        self.flows: list[FlowPoint] = []
        self.asyncs: list[AsyncPoint] = []

    def take(self, event: WireEvent) -> None:
        track: Track = self.source[int(event.pid), int(event.tid)]
        at_ns = _exact(event.ts) + self.origin_ns
        args = event.args if len(event.args) else None
        if event.ph == "X":
            self.slices.append(Slice(event.name, event.cat, track, at_ns, _exact(event.dur), args))
        elif event.ph == "i":
            self.instants.append(Instant(event.name, event.cat, track, at_ns, event.s, args))
        elif event.ph == "C":
            self.counters.append(Counter(event.name, track, at_ns, args))
        elif event.ph in ("s", "t", "f"):
            number = int(event.id or 0) - self.header.flow_base
            self.flows.append(FlowPoint(event.ph, event.name, event.cat, track, at_ns, number, event.bp))
        else:
            name = str(event.id).partition(":")[2]
            self.asyncs.append(AsyncPoint(event.ph, event.name, event.cat, track, at_ns, name, args))

    def trace(self) -> RankTrace:
        head = self.header
        return RankTrace(
            source=head.source,
            coordinates=head.coordinates,
            slices=self.slices,
            instants=self.instants,
            counters=self.counters,
            flows=self.flows,
            tracks=head.tracks,
            metadata=head.metadata,
            base_ns=head.base_ns,
            dropped=head.dropped,
            complete=head.complete,
            asyncs=self.asyncs,
            notes=head.notes,
            clock=self.clock,
        )
