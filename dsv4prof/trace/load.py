"""One rank's trace file -> RankTrace: typed, in exact integer nanoseconds, args unread, nothing dropped in silence.

Kineto's layout and key order differ by version, so nothing here depends on them (PyTorch's Kineto writer is the source
of the format; Google's Trace Event Format document names the phases).
"""

from __future__ import annotations

import codecs
import gc
from collections import Counter as Tally
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from isal import igzip, isal_zlib

from dsv4prof.errors import InputError
from dsv4prof.model.event import AsyncPoint, Counter, FlowPoint, Instant, Slice, Track
from dsv4prof.model.trace import Dropped, RankTrace
from dsv4prof.trace.identity import coordinates, identify
from dsv4prof.trace.salvage import GZIP_MAGIC, Salvaged, inflate, salvage
from dsv4prof.trace.tracks import TrackTable
from dsv4prof.trace.vendor import GPU_CATEGORIES
from dsv4prof.trace.wire import NOT_JSON, WireEvent, decode_events, nanoseconds, split_document

HINT_NOT_A_TRACE = "expected a Chrome trace written by torch.profiler (.json or .json.gz)"
_HINT_PATH = "check the path and its permissions"
_OTHER_FORMATS = {
    "rocprofiler-sdk-tool": "it is a rocprofv3 result; record with torch.profiler instead",
    "segments": "it is an allocator snapshot; open it at pytorch.org/memory_viz",
    "dsv4prof.session": "it is a session manifest; give the session's folder",
}


def load_rank(path: str | Path, *, rank: int | None = None) -> RankTrace:
    """Read one rank's file (.json or .json.gz, told by content).

    `rank` overrules name and content; without any of them the file is rank 0. A damaged file keeps every whole event:
    see `complete`, `dropped` and `notes`. Raises InputError when the file cannot be read or is no trace.
    """
    path = Path(path)
    data, cut = _read(path)
    with paused_gc():
        parts = _parse(data, path, cut)
        return _assemble(path, parts, cut, rank)


@contextmanager
def paused_gc() -> Iterator[None]:
    """Building a million acyclic objects makes the collector scan them again and again: half of a load's time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def read_text(path: Path) -> bytes:
    """The decompressed bytes of a whole file. Raises InputError when it is cut."""
    data, cut = _read(path)
    if cut is not None:
        raise InputError(f"{path}: {cut}", hint="load the file as a rank to keep its whole events")
    return data


def read_head(path: Path, size: int) -> bytes:
    """The first bytes of a file, decompressed as far as they go. Raises InputError when it cannot be opened."""
    try:
        with path.open("rb") as file:
            data = file.read(size)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}", hint=_HINT_PATH) from error
    return inflate(data)[0][:size] if data.startswith(GZIP_MAGIC) else data


def _read(path: Path) -> tuple[bytes, str | None]:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}", hint=_HINT_PATH) from error
    if not data.strip():
        raise InputError(f"{path} is empty", hint="the rank may have died before it exported; record again")
    if not data.startswith(GZIP_MAGIC):
        return data.removeprefix(codecs.BOM_UTF8), None
    try:
        return igzip.decompress(data), None
    except (EOFError, OSError, isal_zlib.error):  # type: ignore[misc]  # isal has no stubs
        data, cut = inflate(data)
        if not data:
            raise InputError(f"{path}: {cut}, and nothing could be decompressed", hint=HINT_NOT_A_TRACE) from None
        return data, cut


def _parse(data: bytes, path: Path, cut: str | None) -> Salvaged:
    try:
        fields = split_document(data)
        if "traceEvents" not in fields:
            raise InputError(f"{path} is not a trace: it has no traceEvents", hint=_hint(fields))
        if "dsv4prof" in fields:
            raise InputError(
                f"{path} is a merged trace, not one rank's", hint="analyze it as it is, or merge the rank files"
            )
        events, odd = decode_events(fields.pop("traceEvents"))
        return Salvaged(events, fields, [Dropped(odd, "malformed event")] if odd else [], [], complete=True)
    except msgspec.ValidationError as error:
        raise InputError(f"{path} is not a trace: {error}", hint=HINT_NOT_A_TRACE) from error
    except NOT_JSON as error:
        saved = salvage(data)
        if saved is None:
            why = cut or f"its text is not JSON ({error})"
            raise InputError(f"{path} is not a trace that can be read: {why}", hint=HINT_NOT_A_TRACE) from error
        return saved


def _hint(fields: dict[str, msgspec.Raw]) -> str:
    return next((hint for key, hint in _OTHER_FORMATS.items() if key in fields), HINT_NOT_A_TRACE)


def _assemble(path: Path, parts: Salvaged, cut: str | None, rank: int | None) -> RankTrace:
    metadata = {key: msgspec.json.decode(raw) for key, raw in parts.fields.items() if len(bytes(raw)) > 0}
    base_ns = _base(metadata)
    reader = _Reader(base_ns)
    for event in parts.events:
        reader.take(event)
    if not reader.kept:
        raise InputError(f"{path}: no event in it could be read", hint=HINT_NOT_A_TRACE)
    identity = identify(str(path), metadata)
    chosen = rank if rank is not None else identity.rank
    notes = list(parts.notes)
    if identity.note and rank is None:
        notes.append(identity.note)
    if cut or not parts.complete:
        notes.append(f"file ends early ({cut or 'the JSON is cut'}): {len(parts.events):,} whole events kept")
    return RankTrace(
        source=str(path),
        coordinates=coordinates(identity, chosen or 0, metadata),
        slices=reader.slices,
        instants=reader.instants,
        counters=reader.counters,
        flows=reader.flows,
        tracks=reader.table.infos(),
        metadata=metadata,
        base_ns=base_ns,
        dropped=[*parts.dropped, *(Dropped(count, reason) for reason, count in sorted(reader.dropped.items()))],
        complete=parts.complete and cut is None,
        asyncs=reader.asyncs,
        notes=notes,
    )


def _base(metadata: dict[str, Any]) -> int:
    base = metadata.get("baseTimeNanoseconds", 0)
    return base if isinstance(base, int) and not isinstance(base, bool) else 0


class _Reader:
    """Sorts events by phase letter into the model's lists."""

    def __init__(self, base_ns: int) -> None:
        self.base_ns = base_ns
        self.slices: list[Slice] = []
        self.instants: list[Instant] = []
        self.counters: list[Counter] = []
        self.flows: list[FlowPoint] = []
        self.asyncs: list[AsyncPoint] = []
        self.table = TrackTable()
        self.dropped: Tally[str] = Tally()
        self.names: dict[str, str] = {}

    @property
    def kept(self) -> int:
        return len(self.slices) + len(self.instants) + len(self.counters) + len(self.flows) + len(self.asyncs)

    def take(self, event: WireEvent) -> None:
        ph = event.ph
        if ph == "M":
            self.table.describe(event)
            return
        at_ns = nanoseconds(event.ts)
        if at_ns is None or at_ns < 0:
            self.dropped["no valid time" if at_ns is None else "negative time"] += 1
            return
        track = self.table.track(event.pid, event.tid)
        name = self.names.setdefault(event.name, event.name)
        args = event.args if len(event.args) else None
        if ph == "X":
            self._slice(event, name, track, at_ns, args)
        elif ph in ("s", "t", "f"):
            self._flow(event, name, track, at_ns + self.base_ns)
        elif ph in ("i", "I"):
            self.instants.append(Instant(name, event.cat, track, at_ns + self.base_ns, event.s, args))
        elif ph == "C":
            self.counters.append(Counter(name, track, at_ns + self.base_ns, args))
        elif ph in ("b", "n", "e") and event.id is not None:
            self.asyncs.append(AsyncPoint(ph, name, event.cat, track, at_ns + self.base_ns, event.id, args))
        else:
            self.dropped[f"phase {ph!r} is not one that torch writes"] += 1

    def _slice(self, event: WireEvent, name: str, track: Track, at_ns: int, args: msgspec.Raw | None) -> None:
        dur_ns = nanoseconds(event.dur)
        if dur_ns is None:
            self.dropped["slice without a valid duration"] += 1
        elif dur_ns < 0:
            self.dropped["slice with a negative duration"] += 1
        elif at_ns == 0 and dur_ns == 0 and event.cat in GPU_CATEGORIES:
            self.dropped["GPU record without a time (time 0)"] += 1
        else:
            self.slices.append(Slice(name, event.cat, track, at_ns + self.base_ns, dur_ns, args))

    def _flow(self, event: WireEvent, name: str, track: Track, at_ns: int) -> None:
        if event.id is None:
            self.dropped["flow without an id"] += 1
        else:
            self.flows.append(FlowPoint(event.ph, name, event.cat, track, at_ns, event.id, event.bp))
