"""A rank's trace in memory as a stream of blocks, so that one writer serves files and objects alike."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
import numpy as np

from dsv4prof.model.event import AsyncPoint, FlowPoint, Track
from dsv4prof.model.trace import RankTrace
from dsv4prof.trace.columns import BINDS_ENCLOSING, EVENT, HAS_ID, ID_IS_WORD, Block
from dsv4prof.trace.ranks import RankFacts, RankStream

_SLICES_A_BLOCK = 16_384


class RankMemory(msgspec.Struct, frozen=True):
    """A trace as a source: its slices come first, so that a slice's place in the stream is its place in the list."""

    trace: RankTrace

    def stream(self) -> RankStream:
        return MemoryStream(self.trace)


class MemoryStream:
    """One pass over a trace."""

    def __init__(self, trace: RankTrace) -> None:
        self._trace = trace
        self.words: list[str] = []
        self.tracks: list[Track] = []
        self._word: dict[str, int] = {}
        self._track: dict[Track, int] = {}

    def facts(self) -> RankFacts:
        trace = self._trace
        return RankFacts(
            source=trace.source,
            coordinates=trace.coordinates,
            tracks=trace.tracks,
            metadata=trace.metadata,
            base_ns=trace.base_ns,
            dropped=trace.dropped,
            complete=trace.complete,
            notes=trace.notes,
            clock=trace.clock,
        )

    def blocks(self) -> Iterator[Block]:
        trace, base = self._trace, self._trace.base_ns
        for start in range(0, len(trace.slices), _SLICES_A_BLOCK):
            yield self._block(
                [
                    (s.start_ns - base, s.dur_ns, 0, s.name, s.category, s.track, s.args, "X", "t", 0)
                    for s in trace.slices[start : start + _SLICES_A_BLOCK]
                ]
            )
        points = [
            (p.at_ns - base, 0, 0, p.name, p.category, p.track, p.args, "i", p.scope, 0) for p in trace.instants
        ]
        points += [(p.at_ns - base, 0, 0, p.name, "", p.track, p.args, "C", "t", 0) for p in trace.counters]
        points += [(p.at_ns - base, 0, *self._identified(p), p.args, p.ph, "t", _bits(p)) for p in trace.asyncs]
        points += [(p.at_ns - base, 0, *self._identified(p), None, p.ph, "t", _bits(p)) for p in trace.flows]
        if points:
            yield self._block(points)

    def _identified(self, point: FlowPoint | AsyncPoint) -> tuple[int, str, str, Track]:
        number = self._place(point.id) if isinstance(point.id, str) else point.id
        return number, point.name, point.category, point.track

    def _block(self, events: Sequence[tuple]) -> Block:
        rows = np.zeros(len(events), EVENT)
        texts: list[bytes] = []
        at = 0
        for row, (ts, dur, number, name, category, track, args, ph, scope, flags) in enumerate(events):
            text = b"" if args is None else bytes(args)
            rows[row] = (
                ts, dur, number, self._place(name), self._place(category), self._track_place(track),
                at, len(text), ord(ph), ord(scope), flags, 0,
            )  # fmt: skip
            texts.append(text)
            at += len(text)
        return Block(b"".join(texts), rows)

    def _place(self, word: str) -> int:
        place = self._word.get(word)
        if place is None:
            place = self._word[word] = len(self.words)
            self.words.append(word)
        return place

    def _track_place(self, track: Track) -> int:
        place = self._track.get(track)
        if place is None:
            place = self._track[track] = len(self.tracks)
            self.tracks.append(track)
        return place


def _bits(point: FlowPoint | AsyncPoint) -> int:
    word = ID_IS_WORD if isinstance(point.id, str) else 0
    binds = BINDS_ENCLOSING if isinstance(point, FlowPoint) and point.binding == "e" else 0
    return HAS_ID | word | binds
