"""One rank out of a merged file, as a stream: a merged trace can be narrowed or merged again in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np

from dsv4prof.errors import InputError
from dsv4prof.model.event import Track
from dsv4prof.trace.chunks import DamagedError, chunks
from dsv4prof.trace.columns import Block, Scanner
from dsv4prof.trace.core import scanner
from dsv4prof.trace.document import Document, Odd
from dsv4prof.trace.ranks import RankFacts, RankStream
from dsv4prof.trace.unmerge import MergedHeader, RankHeader, read_header

_META = ord("M")


class MergedPart(msgspec.Struct, frozen=True):
    """The rank at `place` in a merged file. Its times are on the common clock, its asynchronous ids global already."""

    path: str
    place: int

    def stream(self) -> RankStream:
        return PartStream(self)


def parts_of(path: str | Path) -> list[MergedPart]:
    """A source for each rank in a merged file. Raises InputError when its head cannot be read."""
    return [MergedPart(str(path), place) for place in range(len(read_header(path).ranks))]


class PartStream:
    """One pass over the file up to the end of the rank's segment."""

    def __init__(self, source: MergedPart) -> None:
        self._source = source
        self._file: MergedHeader = read_header(source.path)
        self._header: RankHeader = self._file.ranks[source.place]
        self._scanner: Scanner = scanner()
        shared = {info.track: info.track for info in self._header.tracks}
        self._sources = {Track(row.pid, row.tid): shared.get(row.source, row.source) for row in self._header.rows}
        self._pids = {row.pid for row in self._header.rows}
        # For each track of the file its place in `tracks`, -1 for other ranks'.
        self._places: list[int] = []
        self._own: dict[Track, int] = {}

    @property
    def words(self) -> list[str]:
        return self._scanner.words

    @property
    def tracks(self) -> list[Track]:
        return list(self._own)

    def blocks(self) -> Iterator[Block]:
        document = Document(chunks(self._source.path), self._scanner)
        shift = self._file.origin_ns - self._header.base_ns
        begun = False
        try:
            for part in document.blocks():
                own = self._take(part, shift)
                if len(own.rows):
                    begun = True
                    yield own
                elif begun:
                    return
        except DamagedError as error:
            raise InputError(f"{self._source.path} is damaged: {error}", hint="merge the rank files again") from error

    def _take(self, part: Block | Odd, shift: int) -> Block:
        if isinstance(part, Odd):
            # Counters are the only events that we write and the scanner leaves.
            scan = self._scanner.scan(part.text, canonical=True)
            if scan.consumed != len(part.text):
                raise InputError(f"{self._source.path} was changed after it was merged", hint="merge again")
            part = Block(part.text, scan.rows)
        for track in self._scanner.tracks[len(self._places) :]:
            self._places.append(self._place(track))
        place = np.array(self._places, np.int32)[part.rows["track"]]
        rows = part.rows[(place >= 0) & (part.rows["ph"] != _META)]
        rows["track"] = place[(place >= 0) & (part.rows["ph"] != _META)]
        rows["ts"] += shift
        return Block(part.text, rows)

    def _place(self, track: Track) -> int:
        if track.pid not in self._pids:
            return -1
        source = self._sources.get(track)
        if source is None:
            raise InputError(f"{self._source.path} was changed after it was merged", hint="merge the rank files again")
        return self._own.setdefault(source, len(self._own))

    def facts(self) -> RankFacts:
        head = self._header
        described = {info.track: info for info in head.tracks}
        return RankFacts(
            source=head.source,
            coordinates=head.coordinates,
            tracks=[described[track] for track in self._own],
            metadata=head.metadata,
            base_ns=head.base_ns,
            dropped=head.dropped,
            complete=head.complete,
            notes=head.notes,
            clock=next(fit for fit in self._file.clocks if fit.rank == head.coordinates.rank),
            markers=head.markers,
        )
