"""A .pftrace file -> events as canonical Chrome JSON text, so that the ordinary way of loading goes on from there.

Reads what torch's CUPTI monitor writes from 2.14 on (PyTorch PRs 187892, 187898, 191667): slices of threads, a GPU's
operations as render stages, launches tied to them by correlation, counters; and what our own writer makes, exactly.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

import msgspec

from dsv4prof.errors import InputError
from dsv4prof.trace.inflate import GZIP_MAGIC, inflate
from dsv4prof.trace.perfetto.chrome import ChromeEvents
from dsv4prof.trace.perfetto.proto import BrokenMessageError, fields, read_varint, signed
from dsv4prof.trace.perfetto.records import (
    Described,
    Record,
    StageRecord,
    described,
    gpu_counters,
    gpu_stage,
    track_event,
)
from dsv4prof.trace.perfetto.schema import STATE_CLEARED, Packet
from dsv4prof.trace.perfetto.sequences import SequenceState
from dsv4prof.trace.wire import NOT_JSON

_PACKET_KEY = 0x0A
_HINT = "expected a Perfetto trace written by torch.profiler or by dsv4prof"
_BLOCK = 4096
_LEAST = 2


class PftraceContent(msgspec.Struct):
    """A file taken apart. `notes` says what is odd or lost; `complete` is False when the file ends early."""

    tracks: dict[int, Described]
    records: dict[int, list[Record]]
    stages: list[StageRecord]
    gpu_counters: list[tuple[int, int, str, float | int]]
    own: list[dict[str, Any]]
    notes: list[str]
    complete: bool = True


class PftraceEvents:
    """The events of a file. `metadata` are the top-level values of the JSON document that it stands for.

    Times in the text are since `metadata["baseTimeNanoseconds"]`; adding both gives the file's own nanoseconds.
    """

    def __init__(self, content: PftraceContent) -> None:
        self.complete = content.complete
        self._chrome = ChromeEvents(content)
        self.metadata = self._chrome.metadata

    @property
    def notes(self) -> list[str]:
        """What was repaired, guessed or lost, in sentences; whole when the texts are exhausted."""
        return self._chrome.notes

    def texts(self) -> Iterator[bytes]:
        """Blocks of events, each whole, parted by commas: what says how tracks are called first, then all others."""
        held: list[bytes] = []
        for event in self._chrome.events():
            held.append(event)
            if len(held) == _BLOCK:
                yield b",\n".join(held)
                held = []
        if held:
            yield b",\n".join(held)


def is_pftrace(head: bytes) -> bool:
    """Whether a file that begins like this (decompressed, 32 bytes or more) is a Perfetto trace."""
    if head[:1] != bytes([_PACKET_KEY]) or head.lstrip()[:1] in (b"{", b"["):
        return False
    try:
        size, at = read_varint(head, 1)
        first = next(iter(fields(head[at : at + size])), None) if at + size <= len(head) else read_varint(head, at)
    except BrokenMessageError:
        return False
    if first is None or size < _LEAST:
        return False
    key = first[0] if at + size <= len(head) else first[0] >> 3
    return 0 < key < 1 << 16


def read_pftrace(data: bytes, *, source: str = "the file") -> PftraceEvents:
    """Read the bytes of a .pftrace, compressed by gzip or not. A cut file keeps its whole packets and says so.

    Raises InputError when it is no Perfetto trace or holds no event that is known here.
    """
    notes: list[str] = []
    complete = True
    if data.startswith(GZIP_MAGIC):
        read = inflate(data)
        data, notes = read.data, list(read.notes)
        if read.cut is not None:
            complete = False
            notes.append(f"file ends early ({read.cut})")
    if not is_pftrace(data):
        raise InputError(f"{source} is not a Perfetto trace", hint=_HINT)
    content = PftraceContent({}, {}, [], [], [], notes, complete)
    _Packets(content).take(data)
    if not (content.records or content.stages or content.gpu_counters):
        raise InputError(f"{source}: no event in it could be read", hint=_HINT)
    return PftraceEvents(content)


class _Packets:
    def __init__(self, content: PftraceContent) -> None:
        self._content = content
        self._states: dict[int, SequenceState] = {}
        self._damaged = 0

    def take(self, data: bytes) -> None:
        count = self._all(data)
        if self._damaged:
            self._content.notes.append(f"{self._damaged:,} of {count:,} packets are damaged and were left out")

    def _all(self, data: bytes) -> int:
        at, count, end = 0, 0, len(data)
        while at < end:
            try:
                key, behind = read_varint(data, at)
                size, start = read_varint(data, behind)
                if key != _PACKET_KEY or start + size > end:
                    raise BrokenMessageError("cut")
            except BrokenMessageError:
                self._content.complete = False
                self._content.notes.append(
                    f"file ends early: {count:,} whole packets kept, {end - at:,} of {end:,} bytes lost"
                )
                return count
            at = start + size
            count += 1
            try:
                count += self._packet(data[start:at])
            except BrokenMessageError:
                self._damaged += 1
        return count

    def _packet(self, packet: bytes) -> int:
        """The number of packets inside it, which is none for ordinary ones."""
        values: dict[int, int | bytes] = dict(fields(packet))
        sequence = values.get(Packet.SEQUENCE, 0)
        state = self._states.setdefault(sequence if isinstance(sequence, int) else 0, SequenceState())
        flags, time = values.get(Packet.FLAGS, 0), values.get(Packet.TIMESTAMP, 0)
        if isinstance(flags, int) and flags & STATE_CLEARED:
            state.clear()
        at_ns = signed(time) if isinstance(time, int) else 0
        inside = 0
        for field, value in values.items():
            if isinstance(value, bytes):
                inside += self._part(field, value, at_ns, sequence if isinstance(sequence, int) else 0, state)
        return inside

    def _part(self, field: int, value: bytes, at_ns: int, sequence: int, state: SequenceState) -> int:
        content = self._content
        if field == Packet.TRACK_EVENT:
            content.records.setdefault(sequence, []).append(track_event(value, at_ns, state))
        elif field == Packet.INTERNED:
            state.take_interned(value)
        elif field == Packet.TRACK:
            track = described(value)
            content.tracks[track.uuid] = track
        elif field == Packet.GPU_STAGE:
            content.stages.append(gpu_stage(value, at_ns, state))
        elif field == Packet.GPU_COUNTERS:
            content.gpu_counters += [(at_ns, *counter) for counter in gpu_counters(value, state)]
        elif field == Packet.DEFAULTS:
            state.take_defaults(value)
        elif field == Packet.OWN_NOTE:
            self._own(value)
        elif field == Packet.COMPRESSED:
            try:
                return self._all(zlib.decompress(value))
            except zlib.error as error:
                raise BrokenMessageError(str(error)) from error
        return 0

    def _own(self, value: bytes) -> None:
        try:
            note = msgspec.json.decode(value)
        except NOT_JSON as error:
            raise BrokenMessageError(str(error)) from error
        if isinstance(note, dict):
            self._content.own.append(note)
