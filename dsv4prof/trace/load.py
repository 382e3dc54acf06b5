"""One rank's trace file -> RankTrace: typed, in exact integer nanoseconds, args unread, nothing dropped in silence.

Kineto's layout and key order differ by version, so nothing here depends on them (PyTorch's Kineto writer is the source
of the format; Google's Trace Event Format document names the phases).
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from dsv4prof.model.event import AsyncPoint, Counter, FlowPoint, Instant, Slice, Track
from dsv4prof.model.trace import RankTrace
from dsv4prof.trace.columns import BINDS_ENCLOSING, ID_IS_WORD, Block
from dsv4prof.trace.identity import Naming
from dsv4prof.trace.ranks import RankFile, RankStream, read_all
from dsv4prof.trace.whole import paused_gc

_COLUMNS = ("ph", "name", "cat", "track", "ts", "dur", "args_at", "args_len", "id", "flags", "scope")


def load_rank(path: str | Path, *, rank: int | None = None, naming: Naming | None = None) -> RankTrace:
    """Read one rank's file (JSON, plain or compressed, or .pftrace; told by content).

    `rank` overrules name and content; without any of them the file is rank 0. A damaged file keeps every whole event:
    see `complete`, `dropped` and `notes`. Raises InputError when the file cannot be read or is no trace.
    """
    source = RankFile(str(path), rank=rank, naming=naming or Naming())
    with paused_gc():
        trace, _ = read_all(source, build)
    return trace


def build(stream: RankStream) -> RankTrace:
    """A whole stream as typed events."""
    lists = _Lists(stream)
    for block in stream.blocks():
        lists.take(block)
    facts = stream.facts()
    lists.shift(facts.base_ns)
    used = lists.used
    return RankTrace(
        source=facts.source,
        coordinates=facts.coordinates,
        slices=lists.slices,
        instants=lists.instants,
        counters=lists.counters,
        flows=lists.flows,
        tracks=[info for info in facts.tracks if info.track in used],
        metadata=facts.metadata,
        base_ns=facts.base_ns,
        dropped=facts.dropped,
        complete=facts.complete,
        asyncs=lists.asyncs,
        notes=facts.notes,
    )


class _Lists:
    """Rows -> objects. The base time is known only behind the events, so they are shifted at the end."""

    def __init__(self, stream: RankStream) -> None:
        self._stream = stream
        self.slices: list[Slice] = []
        self.instants: list[Instant] = []
        self.counters: list[Counter] = []
        self.flows: list[FlowPoint] = []
        self.asyncs: list[AsyncPoint] = []
        self._blocks: list[Block] = []
        self.used: set[Track] = set()

    def take(self, block: Block) -> None:
        self._blocks.append(block)

    def shift(self, base_ns: int) -> None:
        words, tracks = self._stream.words, self._stream.tracks
        self._blocks.reverse()
        while self._blocks:
            self._block(self._blocks.pop(), words, tracks, base_ns)

    def _block(self, block: Block, words: list[str], tracks: list[Track], base_ns: int) -> None:
        text = block.text
        columns = [block.rows[name].tolist() for name in _COLUMNS]
        for ph, name, cat, place, ts, dur, at, size, ident, flags, scope in zip(*columns, strict=True):
            args = msgspec.Raw(text[at : at + size]) if size else None
            track = tracks[place]
            if ph == 88:
                self.slices.append(Slice(words[name], words[cat], track, ts + base_ns, dur, args))
                continue
            letter = chr(ph)
            number: int | str = words[ident] if flags & ID_IS_WORD else ident
            if letter == "i":
                self.instants.append(Instant(words[name], words[cat], track, ts + base_ns, chr(scope), args))
            elif letter == "C":
                self.counters.append(Counter(words[name], track, ts + base_ns, args))
            elif letter in "stf":
                binding = "e" if flags & BINDS_ENCLOSING else None
                self.flows.append(
                    FlowPoint(letter, words[name], words[cat], track, ts + base_ns, number, binding)
                )
            else:
                self.asyncs.append(
                    AsyncPoint(letter, words[name], words[cat], track, ts + base_ns, number, args)
                )
        self.used.update(tracks[place] for place in set(columns[3]))
