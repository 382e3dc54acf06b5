"""One rank's trace file -> RankTrace: typed, in exact integer nanoseconds, args unread, nothing dropped in silence.

Kineto's layout and key order differ by version, so nothing here depends on them (PyTorch's Kineto writer is the source
of the format; Google's Trace Event Format document names the phases).
"""

from __future__ import annotations

import codecs
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from isal import igzip, isal_zlib

from dsv4prof.errors import InputError
from dsv4prof.model.trace import Dropped, RankTrace
from dsv4prof.trace.identity import coordinates, identify
from dsv4prof.trace.inflate import GZIP_MAGIC, Inflated, inflate
from dsv4prof.trace.mend import where
from dsv4prof.trace.reader import EventReader
from dsv4prof.trace.salvage import Salvaged, read_whole, salvage
from dsv4prof.trace.wire import MAX_NS, NOT_JSON, check_utf8, decode_value, split_document
from dsv4prof.trace.writers import second_stream

HINT_NOT_A_TRACE = "expected a Chrome trace written by torch.profiler (.json or .json.gz)"
_SHOWN = 40
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
    read = _read(path)
    with paused_gc():
        parts = _parse(read.data, path, read.cut)
        parts.notes = [*read.notes, *parts.notes]
        return _assemble(path, parts, read.cut, rank)


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
    read = _read(path)
    if read.cut is not None:
        raise InputError(f"{path}: {read.cut}", hint="load the file as a rank to keep its whole events")
    return read.data


def read_head(path: Path, size: int) -> bytes:
    """The first bytes of a file, decompressed as far as they go. Raises InputError when it cannot be opened."""
    try:
        with path.open("rb") as file:
            data = file.read(size)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}", hint=_HINT_PATH) from error
    return inflate(data).data[:size] if data.startswith(GZIP_MAGIC) else data


def _read(path: Path) -> Inflated:
    """A file's text, whatever its name says of compression, without a byte order mark."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}", hint=_HINT_PATH) from error
    if not data.strip():
        raise InputError(f"{path} is empty", hint="the rank may have died before it exported; record again")
    if not data.startswith(GZIP_MAGIC):
        return Inflated(_without_mark(data), None, [])
    try:
        return Inflated(_without_mark(igzip.decompress(data)), None, [])
    except (EOFError, OSError, isal_zlib.error):  # type: ignore[misc]  # isal has no stubs
        read = inflate(data)
        # A second header read as data can end the first stream by chance: only its checksum shows that.
        foreign = second_stream(data)
        if foreign is not None:
            raise _two_writers(path, f"another gzip stream begins at byte {foreign:,} of the file") from None
        if not read.data:
            why = read.cut or "it holds nothing"
            raise InputError(f"{path}: {why}, and nothing could be decompressed", hint=HINT_NOT_A_TRACE) from None
        return msgspec.structs.replace(read, data=_without_mark(read.data))


def _without_mark(text: bytes) -> bytes:
    """Without a byte order mark. Blanks take its place, so that every byte stays where it is in the file."""
    mark = codecs.BOM_UTF8
    return b" " * len(mark) + text[len(mark) :] if text.startswith(mark) else text


def _two_writers(path: Path, evidence: str) -> InputError:
    return InputError(
        f"{path} holds two traces mixed into each other: {evidence}; the likely cause is two writers of one path",
        hint="neither can be told from the other; give each rank a path of its own and record again",
    )


def _parse(data: bytes, path: Path, cut: str | None) -> Salvaged:
    try:
        check_utf8(data)
        whole = read_whole(data)
        if whole is None:
            raise InputError(f"{path} is not a trace: it has no traceEvents", hint=_hint(split_document(data)))
        if "dsv4prof" in whole.fields:
            raise InputError(
                f"{path} is a merged trace, not one rank's", hint="analyze it as it is, or merge the rank files"
            )
        return whole
    except msgspec.ValidationError as error:
        raise InputError(f"{path} is not a trace: {error}", hint=HINT_NOT_A_TRACE) from error
    except NOT_JSON as error:
        saved = salvage(data)
        if saved is None:
            why = cut or f"its text is not JSON ({error})"
            raise InputError(f"{path} is not a trace that can be read: {why}", hint=HINT_NOT_A_TRACE) from error
        if saved.foreign is not None:
            raise _two_writers(path, f"text of another one begins at {where(data, saved.foreign)}") from error
        return saved


def _hint(fields: dict[str, msgspec.Raw]) -> str:
    return next((hint for key, hint in _OTHER_FORMATS.items() if key in fields), HINT_NOT_A_TRACE)


def _assemble(path: Path, parts: Salvaged, cut: str | None, rank: int | None) -> RankTrace:
    metadata, unread = _metadata(parts.fields)
    base_ns, odd_base = _base(metadata)
    reader = EventReader(base_ns)
    for event in parts.events:
        reader.take(event)
    reader.close()
    if not reader.kept:
        raise InputError(f"{path}: no event in it could be read", hint=HINT_NOT_A_TRACE)
    identity = identify(str(path), metadata)
    chosen = rank if rank is not None else identity.rank
    notes = [*parts.notes, *unread, *odd_base]
    if rank is None:
        notes += identity.notes
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
    if isinstance(base, int) and not isinstance(base, bool) and 0 <= base < MAX_NS:
        return base, []
    return 0, ["its base time is none that a clock shows; it was ignored"]
