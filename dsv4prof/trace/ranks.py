"""One rank's events as a stream of blocks, whatever they come from: a file, a damaged file, or a trace in memory.

A stream is read once; its facts are known when its blocks are exhausted. Reading it again gives the same blocks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import msgspec

from dsv4prof.errors import InputError
from dsv4prof.model.event import Instant, Track
from dsv4prof.model.session import RankCoordinates
from dsv4prof.model.trace import ClockFit, Dropped, TrackInfo
from dsv4prof.trace.chunks import DamagedError, chunks, opened
from dsv4prof.trace.columns import Block, Scanner
from dsv4prof.trace.core import scanner
from dsv4prof.trace.document import Document, Odd
from dsv4prof.trace.identity import Naming, coordinates, identify
from dsv4prof.trace.perfetto.reader import PftraceEvents, is_pftrace, read_pftrace
from dsv4prof.trace.reader import EventReader
from dsv4prof.trace.salvage import Salvaged
from dsv4prof.trace.whole import HINT_NOT_A_TRACE, check_not_merged, check_one_writer, read_head, read_salvaged
from dsv4prof.trace.wire import MAX_NS, NOT_JSON, WireEvent, decode_event, decode_value, is_text_fault

_SHOWN = 40
_META = ord("M")
# Text of this many canonical events is scanned at once.
_BATCH = 4096
_TEXT_TIME = re.compile(rb'"ts"\s*:\s*"')
_TEXT_TIMES = "its times are text, which some viewers refuse; they were read as exact decimals"
# Enough of a file to tell its format.
_HEAD = 64


class RankFacts(msgspec.Struct, frozen=True):
    """What a rank's file says beside its events; `dropped`, `notes` and `complete` say what was not taken."""

    source: str
    coordinates: RankCoordinates
    tracks: list[TrackInfo]
    metadata: dict[str, Any]
    base_ns: int
    dropped: list[Dropped]
    complete: bool
    notes: list[str]
    # Of a rank out of a merged trace: how its times were put on the common clock, on which they are.
    clock: ClockFit | None = None
    # What is worth saying and no fault.
    remarks: list[str] = []
    # Marks of the window that are not among the events; absolute ns.
    markers: list[Instant] = []


class RankStream(Protocol):
    """Blocks of one rank's events without metadata events (M); `facts` may be asked when they are exhausted."""

    @property
    def words(self) -> list[str]: ...

    @property
    def tracks(self) -> list[Track]: ...

    def blocks(self) -> Iterator[Block]: ...

    def facts(self) -> RankFacts: ...


class RankSource(Protocol):
    """Where a rank's stream comes from, again and again. Picklable: a merge reads it in other processes."""

    def stream(self) -> RankStream: ...


class RankFile(msgspec.Struct, frozen=True):
    """A file (path or URL) as a source. `salvage` reads it whole and keeps what is whole; `rank` overrules all."""

    path: str
    rank: int | None = None
    naming: Naming = Naming()
    salvage: bool = False

    def stream(self) -> RankStream:
        return FileStream(self)


def read_all(source: RankFile, take: Callable[[RankStream], Any]) -> tuple[Any, RankFile]:
    """`take` of the file's stream, and the source as it must be read again: a damaged file is salvaged.

    Raises InputError when the file cannot be read, is no trace, or no event of it could be read.
    """
    try:
        return take(source.stream()), source
    except DamagedError:
        salvaged = msgspec.structs.replace(source, salvage=True)
        return take(salvaged.stream()), salvaged


class FileStream:
    """One pass over a file. Raises DamagedError unless its source says `salvage`."""

    def __init__(self, source: RankFile) -> None:
        self._source = source
        self._scanner: Scanner = scanner()
        self._reader = EventReader()
        self._described: dict[tuple[int, int, bytes], None] = {}
        self._count = 0
        self._odd = 0
        self._saved: Salvaged | None = None
        self._perfetto: PftraceEvents | None = None
        self._cut: str | None = None
        self._unfinished = False
        self._notes: list[str] = []
        self._times_as_text = False
        self._fields: dict[str, msgspec.Raw] = {}

    @property
    def words(self) -> list[str]:
        return self._scanner.words

    @property
    def tracks(self) -> list[Track]:
        return self._scanner.tracks

    def blocks(self) -> Iterator[Block]:
        for block in self._raw_blocks():
            kept = self._without_descriptions(block)
            if len(kept.rows):
                self._count += len(kept.rows)
                yield kept
        if not self._count:
            raise InputError(f"{self._source.path}: no event in it could be read", hint=HINT_NOT_A_TRACE)
        for name, track, args in self._described:
            place = self.tracks[track]
            event = WireEvent("M", self.words[name], pid=place.pid, tid=place.tid, args=msgspec.Raw(args))
            self._reader.describe(event)

    def _raw_blocks(self) -> Iterator[Block]:
        if self._source.salvage:
            return self._salvaged()
        return self._from_perfetto() if is_pftrace(read_head(self._source.path, _HEAD)) else self._streamed()

    def _from_perfetto(self) -> Iterator[Block]:
        """The format does not keep an event whole at one place, so such a file is held in memory."""
        with opened(self._source.path) as file:
            self._perfetto = read_pftrace(file.read(), source=self._source.path)
        for text in self._perfetto.texts():
            yield Block(text, self._scanner.scan(text, canonical=True).rows)
        check_not_merged(self._source.path, self._perfetto.metadata)
        encode = msgspec.json.encode
        self._fields = {key: msgspec.Raw(encode(value)) for key, value in self._perfetto.metadata.items()}

    def _streamed(self) -> Iterator[Block]:
        document = Document(chunks(self._source.path), self._scanner)
        odd: list[bytes] = []
        for part in document.blocks():
            if isinstance(part, Odd):
                odd += self._general(part.text)
                if len(odd) < _BATCH:
                    continue
            if odd:
                yield self._canonical(odd)
                odd = []
            if isinstance(part, Block):
                yield part
        odd += self._reader.close()
        if odd:
            yield self._canonical(odd)
        check_not_merged(self._source.path, document.fields)
        self._fields = document.fields
        self._cut, self._unfinished = document.cut, document.unfinished
        self._notes += document.notes
        if self._cut:
            check_one_writer(self._source.path)

    def _salvaged(self) -> Iterator[Block]:
        self._saved, self._cut = read_salvaged(self._source.path)
        self._fields = self._saved.fields
        texts: list[bytes] = []
        for event in self._saved.events:
            texts += self._one(event)
            if len(texts) >= _BATCH:
                yield self._canonical(texts)
                texts = []
        texts += self._reader.close()
        if texts:
            yield self._canonical(texts)

    def _general(self, element: bytes) -> list[bytes]:
        self._times_as_text = self._times_as_text or _TEXT_TIME.search(element) is not None
        event = decode_event(element)
        if event is None:
            if is_text_fault(element):
                raise DamagedError("text that is no UTF-8 or has lone surrogates")
            self._odd += 1
            return []
        return self._one(event)

    def _one(self, event: WireEvent) -> list[bytes]:
        text = self._reader.take(event)
        return [] if text is None else [text]

    def _canonical(self, texts: list[bytes]) -> Block:
        text = b",".join(texts)
        scan = self._scanner.scan(text, canonical=True)
        if scan.consumed == len(text):
            return Block(text, scan.rows)
        if not self._source.salvage:
            raise DamagedError("an event that must be mended")
        good = [each for each in texts if self._scanner.scan(each, canonical=True).consumed == len(each)]
        self._reader.dropped["event that cannot be written"] += len(texts) - len(good)
        text = b",".join(good)
        return Block(text, self._scanner.scan(text, canonical=True).rows)

    def _without_descriptions(self, block: Block) -> Block:
        """Take what the block says of tracks; one file repeats one sentence 310,046 times."""
        described = block.rows["ph"] == _META
        if not described.any():
            return block
        for row in block.rows[described]:
            args = block.text[row["args_at"] : row["args_at"] + row["args_len"]]
            key = (int(row["name"]), int(row["track"]), args)
            # The last word counts, so a sentence moves to the end when it is said again.
            self._described.pop(key, None)
            self._described[key] = None
        return Block(block.text, block.rows[~described])

    def facts(self) -> RankFacts:
        source, saved = self._source, self._saved
        metadata, unread = _metadata(self._fields)
        base_ns, odd_base = _base(metadata)
        identity = identify(source.path, metadata, source.naming)
        chosen = source.rank if source.rank is not None else identity.rank
        perfetto = self._perfetto
        repaired = [*(saved.notes if saved else []), *(perfetto.notes if perfetto else [])]
        notes = [*self._notes, *repaired, *unread, *odd_base]
        if source.rank is None:
            notes += identity.notes
        complete = self._cut is None and (saved is None or saved.complete)
        if not complete:
            notes.append(f"file ends early ({self._cut or 'the JSON is cut'}): {self._count:,} whole events kept")
        complete = complete and (perfetto is None or perfetto.complete)
        dropped = [*(saved.dropped if saved else [])]
        if self._unfinished:
            dropped.append(Dropped(1, "event cut off where the file ends early"))
        if self._odd:
            dropped.append(Dropped(self._odd, "malformed event"))
        table = self._reader.table
        dropped += [Dropped(count, reason) for reason, count in sorted(self._reader.dropped.items())]
        return RankFacts(
            source=source.path,
            coordinates=coordinates(identity, chosen or 0, metadata),
            tracks=[table.info(track) for track in self.tracks],
            metadata=metadata,
            base_ns=base_ns,
            dropped=dropped,
            complete=complete,
            notes=notes,
            remarks=[_TEXT_TIMES] if self._times_as_text else [],
        )


def _metadata(fields: dict[str, msgspec.Raw]) -> tuple[dict[str, Any], list[str]]:
    """The top-level values, and a sentence for each that cannot be read."""
    metadata: dict[str, Any] = {}
    notes: list[str] = []
    for key, raw in fields.items():
        try:
            metadata[key] = decode_value(raw)
        except (*NOT_JSON, ValueError) as error:
            notes.append(f"the value of {key[:_SHOWN]!r} was left out: {error}")
    return metadata, notes


def _base(metadata: dict[str, Any]) -> tuple[int, list[str]]:
    base = metadata.get("baseTimeNanoseconds", 0)
    number = float(base) if isinstance(base, str) and base.isascii() and base.isdecimal() else base
    if isinstance(number, float) and number.is_integer():
        # Rewritten by another tool: an integer still, and exact where it is text.
        base = int(base)
    if isinstance(base, int) and not isinstance(base, bool) and 0 <= base < MAX_NS:
        return base, []
    return 0, ["its base time is none that a clock shows; it was ignored"]
