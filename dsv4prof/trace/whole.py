"""A trace file read at once: the way for files that the streamed reader cannot follow, which keeps what is whole.

Its memory is that of the file's text, so only damaged files and small ones are read like this.
"""

from __future__ import annotations

import codecs
import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec
from isal import igzip, isal_zlib

from dsv4prof.errors import InputError, NotATraceError
from dsv4prof.trace.chunks import DamagedError, cannot_read, chunks, is_zstd, opened
from dsv4prof.trace.inflate import GZIP_MAGIC, Inflated, inflate
from dsv4prof.trace.mend import has_lone_surrogate, where
from dsv4prof.trace.salvage import Salvaged, read_whole, salvage
from dsv4prof.trace.wire import NOT_JSON, check_utf8, split_document
from dsv4prof.trace.writers import second_stream

HINT_NOT_A_TRACE = "expected a trace written by torch.profiler (.json, .json.gz, .json.zst or .pftrace)"
_TAR_AT, _TAR_MAGIC = 257, b"ustar"
_OTHER_FORMATS = {
    "rocprofiler-sdk-tool": "it is a rocprofv3 result; record with torch.profiler instead",
    "segments": "it is an allocator snapshot; open it at pytorch.org/memory_viz",
    "dsv4prof.session": "it is a session manifest; give the session's folder",
}


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


def read_head(path: Path | str, size: int) -> bytes:
    """The first bytes of a file, decompressed as far as they go. Raises InputError when it cannot be opened."""
    try:
        return next(chunks(path, size), b"")[:size]
    except DamagedError:
        with opened(path) as file:
            data = file.read(size)
        return inflate(data).data[:size] if data.startswith(GZIP_MAGIC) else data


def read_salvaged(path: str | Path) -> tuple[Salvaged, str | None]:
    """Every whole event of a file, and why its compressed stream ends early, if it does.

    Raises InputError when it cannot be read, is empty or is no trace.
    """
    read = _read(path)
    with paused_gc():
        saved = _parse(read.data, path, read.cut)
    saved.notes = [*read.notes, *saved.notes]
    return saved, read.cut


def check_one_writer(path: str | Path) -> None:
    """Raise InputError when the compressed bytes of a cut file hold the beginning of another stream."""
    with opened(path) as file:
        data = file.read()
    foreign = second_stream(data) if data.startswith(GZIP_MAGIC) else None
    if foreign is not None:
        raise _two_writers(path, f"another gzip stream begins at byte {foreign:,} of the file")


def check_not_merged(path: str | Path, fields: Mapping[str, object]) -> None:
    """Raise InputError for a merged file where one rank's is wanted."""
    if "dsv4prof" in fields:
        raise InputError(
            f"{path} is a merged trace, not one rank's",
            hint="merge the rank files again; only a merged .json can be analysed or merged",
        )


def _read(path: str | Path) -> Inflated:
    """A file's text, whatever its name says of compression, without a byte order mark."""
    try:
        with opened(path) as file:
            data = file.read()
    except OSError as error:
        raise cannot_read(path, error) from error
    if not data.strip():
        raise InputError(f"{path} is empty", hint="the rank may have died before it exported; record again")
    if data[_TAR_AT : _TAR_AT + len(_TAR_MAGIC)] == _TAR_MAGIC:
        raise NotATraceError(f"{path} is a tar archive, not a trace", hint="give the files in it")
    if is_zstd(data):
        return _read_zstd(path)
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


def _read_zstd(path: str | Path) -> Inflated:
    """As far as it goes."""
    out: list[bytes] = []
    try:
        out.extend(chunks(path, 1 << 16))
    except DamagedError as error:
        return Inflated(b"".join(out), f"the zstd stream is damaged ({error})", [])
    return Inflated(b"".join(out), None, [])


def _without_mark(text: bytes) -> bytes:
    """Without a byte order mark. Blanks take its place, so that every byte stays where it is in the file."""
    mark = codecs.BOM_UTF8
    return b" " * len(mark) + text[len(mark) :] if text.startswith(mark) else text


def _two_writers(path: str | Path, evidence: str) -> InputError:
    return InputError(
        f"{path} holds two traces mixed into each other: {evidence}; the likely cause is two writers of one path",
        hint="neither can be told from the other; give each rank a path of its own and record again",
    )


def _parse(data: bytes, path: str | Path, cut: str | None) -> Salvaged:
    try:
        check_utf8(data)
        if has_lone_surrogate(data):
            raise msgspec.DecodeError("lone surrogates")
        whole = read_whole(data)
        if whole is None:
            raise NotATraceError(f"{path} is not a trace: it has no traceEvents", hint=_hint(split_document(data)))
        check_not_merged(path, whole.fields)
        return whole
    except msgspec.ValidationError as error:
        raise NotATraceError(f"{path} is not a trace: {error}", hint=HINT_NOT_A_TRACE) from error
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
