"""A merged trace -> Chrome JSON that Perfetto and chrome://tracing open whole, and that loads back exactly.

Times are written as decimal microseconds relative to a small origin: Perfetto parses them as doubles, and at epoch
scale a double keeps only a quarter of a microsecond. `baseTimeNanoseconds` plus a time is the absolute one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import msgspec
from isal import isal_zlib

from dsv4prof.errors import OutputError
from dsv4prof.model.event import Instant, Track
from dsv4prof.model.trace import MergedRank, MergedTrace
from dsv4prof.trace.lanes import by_track, innermost_at

MERGED_SCHEMA = "dsv4prof.merged/1"
_CHUNK = 1 << 20
_WINDOW_MARKERS = ("Iteration Start: ", "Record Window End")


def write_chrome_json(merged: MergedTrace, path: str | Path) -> Path:
    """Write `path` at once or not at all; compressed when its name ends in .gz. Equal input gives equal bytes.

    Raises OutputError when the folder cannot be written.
    """
    path = Path(path)
    compress = path.name.endswith(".gz")
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        try:
            with temporary.open("xb") as file:
                for block in _deflated(_document(merged)) if compress else _blocks(_document(merged)):
                    file.write(block)
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise OutputError(
            f"cannot write {path}: {error.strerror or error}", hint="check the folder, its permissions and free space"
        ) from error
    return path


def merged_metadata(merged: MergedTrace) -> dict[str, Any]:
    """What a merged file says of itself: enough to take it apart into ranks again."""
    ranks = []
    for rank in merged.ranks:
        trace = rank.trace
        ranks.append(
            {
                "rank": trace.coordinates.rank,
                "coordinates": trace.coordinates,
                "source": Path(trace.source).name,
                "base_ns": trace.base_ns,
                "complete": trace.complete,
                "dropped": trace.dropped,
                "notes": trace.notes,
                "flow_base": rank.flow_base,
                "rows": rank.rows,
                "tracks": trace.tracks,
                "metadata": trace.metadata,
                "markers": [point for point in trace.instants if is_window_marker(point)],
                "counts": _counts(rank),
            }
        )
    return {
        "schema": MERGED_SCHEMA,
        "version": _version(),
        "missing_ranks": merged.missing_ranks,
        "clocks": merged.clocks,
        "ranks": ranks,
    }


def _version() -> str:
    try:
        return metadata.version("dsv4prof")
    except metadata.PackageNotFoundError:
        return "unknown"


def is_window_marker(point: Instant) -> bool:
    """Kineto's two marks of the recording window, which would fill two process rows a rank with nothing to see.

    They travel in the merged file's own metadata, and come back when it is loaded.
    """
    return isinstance(point.track.pid, str) and point.args is None and point.name.startswith(_WINDOW_MARKERS)


def _counts(rank: MergedRank) -> dict[str, int]:
    trace = rank.trace
    return {
        "slices": len(trace.slices),
        "instants": len(trace.instants),
        "counters": len(trace.counters),
        "flows": len(trace.flows),
        "asyncs": len(trace.asyncs),
        "lanes": rank.lane_count,
        "moved": len(rank.lanes),
    }


def _blocks(lines: Iterator[bytes]) -> Iterator[bytes]:
    held: list[bytes] = []
    size = 0
    for line in lines:
        held.append(line)
        size += len(line)
        if size >= _CHUNK:
            yield b"".join(held)
            held.clear()
            size = 0
    yield b"".join(held)


def _deflated(lines: Iterator[bytes]) -> Iterator[bytes]:
    stream = isal_zlib.compressobj(level=1, wbits=31)
    for block in _blocks(lines):
        yield stream.compress(block)
    yield stream.flush()


def _document(merged: MergedTrace) -> Iterator[bytes]:
    """The metadata comes first, so that a reader of the head knows what the file is."""
    yield b'{"schemaVersion":1,"displayTimeUnit":"ms","baseTimeNanoseconds":%d,\n' % merged.origin_ns
    yield b'"dsv4prof":' + msgspec.json.encode(merged_metadata(merged)) + b',\n"traceEvents":[\n'
    first = True
    for rank in merged.ranks:
        for line in _RankWriter(rank, merged.origin_ns).lines():
            yield line if first else b",\n" + line
            first = False
    yield b"\n]}\n"


class _RankWriter:
    def __init__(self, rank: MergedRank, origin_ns: int) -> None:
        self.rank = rank
        self.trace = rank.trace
        self.origin_ns = origin_ns
        self.place = {row.source: b'"pid":%d,"tid":%d' % (row.pid, row.tid) for row in rank.rows if row.lane == 1}
        self.pid = {row.source: row.pid for row in rank.rows}
        self.instants = [point for point in rank.trace.instants if not is_window_marker(point)]
        self.tracks = by_track(rank.trace.slices)
        self.text: dict[str, bytes] = {}

    def lines(self) -> Iterator[bytes]:
        yield from self._metadata()
        yield from self._slices()
        yield from self._points()
        yield from self._flows()

    def _word(self, text: str) -> bytes:
        encoded = self.text.get(text)
        if encoded is None:
            encoded = self.text[text] = msgspec.json.encode(text)
        return encoded

    def _time(self, at_ns: int) -> bytes:
        return _microseconds(at_ns - self.origin_ns)

    def _metadata(self) -> Iterator[bytes]:
        described: set[int] = set()
        used = self._used_tracks()
        for row in self.rank.rows:
            if row.source not in used:
                continue
            place = b'"pid":%d,"tid":%d' % (row.pid, row.tid)
            if row.pid not in described:
                described.add(row.pid)
                yield _meta(b"process_name", place, {"name": row.process_name})
                if row.process_labels is not None:
                    yield _meta(b"process_labels", place, {"labels": row.process_labels})
                yield _meta(b"process_sort_index", place, {"sort_index": row.process_sort})
            if row.thread_name is not None:
                yield _meta(b"thread_name", place, {"name": row.thread_name})
            if row.thread_sort is not None:
                yield _meta(b"thread_sort_index", place, {"sort_index": row.thread_sort})

    def _used_tracks(self) -> set[Track]:
        trace = self.trace
        used = {event.track for event in trace.slices}
        for points in (self.instants, trace.counters, trace.flows, trace.asyncs):
            used.update(point.track for point in points)
        return used

    def _slices(self) -> Iterator[bytes]:
        """Parents before children on every track: Perfetto keeps file order among equal times."""
        slices, lanes = self.trace.slices, self.rank.lanes
        for track, indexes in self.tracks.items():
            place = self.place[track]
            for index in indexes:
                event = slices[index]
                where = place if index not in lanes else b'"pid":%d,"tid":%d' % (self.pid[track], lanes[index])
                yield b'{"ph":"X","cat":%b,"name":%b,%b,"ts":%b,"dur":%b%b}' % (
                    self._word(event.category),
                    self._word(event.name),
                    where,
                    self._time(event.start_ns),
                    _microseconds(event.dur_ns),
                    b"" if event.args is None else b',"args":' + bytes(event.args),
                )

    def _points(self) -> Iterator[bytes]:
        for point in self.instants:
            yield b'{"ph":"i","s":%b,"cat":%b,"name":%b,%b,"ts":%b%b}' % (
                self._word(point.scope),
                self._word(point.category),
                self._word(point.name),
                self.place[point.track],
                self._time(point.at_ns),
                b"" if point.args is None else b',"args":' + bytes(point.args),
            )
        for counter in self.trace.counters:
            yield b'{"ph":"C","name":%b,%b,"ts":%b%b}' % (
                self._word(counter.name),
                self.place[counter.track],
                self._time(counter.at_ns),
                b"" if counter.args is None else b',"args":' + bytes(counter.args),
            )
        for span in self.trace.asyncs:
            yield b'{"ph":%b,"id":%b,"cat":%b,"name":%b,%b,"ts":%b%b}' % (
                self._word(span.ph),
                self._word(f"{self.trace.coordinates.rank}:{span.id}"),
                self._word(span.category),
                self._word(span.name),
                self.place[span.track],
                self._time(span.at_ns),
                b"" if span.args is None else b',"args":' + bytes(span.args),
            )

    def _flows(self) -> Iterator[bytes]:
        moved = self._moved_ends()
        for point in self.trace.flows:
            assert isinstance(point.id, int), "merge gives every flow an integer id"
            yield b'{"ph":%b,"id":%d,"cat":%b,"name":%b,%b,"ts":%b%b}' % (
                self._word(point.ph),
                self.rank.flow_base + point.id,
                self._word(point.category),
                self._word(point.name),
                moved.get((point.track, point.at_ns)) or self.place[point.track],
                self._time(point.at_ns),
                b"" if point.binding is None else b',"bp":' + self._word(point.binding),
            )

    def _moved_ends(self) -> dict[tuple[Track, int], bytes]:
        """Where an arrow must begin or end whose slice went to a lane."""
        slices, lanes = self.trace.slices, self.rank.lanes
        split = {slices[index].track for index in lanes}
        times: dict[Track, set[int]] = {}
        for point in self.trace.flows:
            if point.track in split:
                times.setdefault(point.track, set()).add(point.at_ns)
        return {
            (track, at): b'"pid":%d,"tid":%d' % (self.pid[track], lanes[index])
            for track, own in times.items()
            for at, index in innermost_at(slices, self.tracks[track], own).items()
            if index in lanes
        }


def _meta(name: bytes, place: bytes, args: dict[str, Any]) -> bytes:
    return b'{"ph":"M","name":"%b",%b,"ts":0,"args":%b}' % (name, place, msgspec.json.encode(args))


def _microseconds(ns: int) -> bytes:
    whole, part = divmod(ns, 1000)
    return b"%d.%03d" % (whole, part) if part else b"%d" % whole
