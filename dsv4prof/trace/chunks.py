"""The text of a trace file in pieces of a few megabytes, decompressed as it is read, from a disk or a URL.

What is damaged is not mended here: a piece that cannot be decompressed raises DamagedError, and the file is then read
whole.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

from isal import isal_zlib

from dsv4prof.errors import InputError, MissingExtraError
from dsv4prof.trace.inflate import GZIP_MAGIC

ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_SKIPPABLE = b"\x2a\x4d\x18"
CHUNK = 4 << 20
HINT_PATH = "check the path and its permissions"
# Of compressed bytes at a time; what they hold may be a hundred times as much.
_READ = 256 << 10


class DamagedError(Exception):
    """A file that the streamed reader cannot follow; its message says where or why."""


class CutError(DamagedError):
    """The text ends early; all of it that is there was given before this was raised."""


def is_zstd(head: bytes) -> bool:
    """Whether a file begins with a zstd frame, or one to be skipped, as parallel compressors write it first."""
    return head.startswith(ZSTD_MAGIC) or (head[1:4] == _SKIPPABLE and head[:1] >= b"\x50" and head[:1] <= b"\x5f")


def is_url(path: str | Path) -> bool:
    """Whether a path names a file system of its own (s3://, gs://, memory://...)."""
    return "://" in str(path)


@contextmanager
def opened(path: str | Path) -> Iterator[BinaryIO]:
    """The file of a path or URL, open for reading bytes. Raises InputError when that cannot be."""
    try:
        file = _remote(str(path)) if is_url(path) else Path(path).open("rb")  # noqa: SIM115  entered below
    except (OSError, ValueError) as error:
        raise cannot_read(path, error) from error
    with file:
        yield file


def cannot_read(path: str | Path, error: Exception) -> InputError:
    """The error that says so."""
    words = getattr(error, "strerror", None) or error
    return InputError(f"cannot read {path}: {words}", hint=HINT_PATH)


def chunks(path: str | Path, size: int = CHUNK) -> Iterator[bytes]:
    """Pieces of a file's text, `size` bytes but for the last. A byte order mark becomes blanks.

    Raises InputError when the file cannot be read, CutError where its compressed stream ends early, DamagedError where
    it is damaged.
    """
    with opened(path) as file:
        first = True
        for piece in _decompressed(file, path, size):
            yield _without_mark(piece) if first else piece
            first = False


def _decompressed(file: BinaryIO, path: str | Path, size: int) -> Iterator[bytes]:
    """Told by the first bytes, not by the name."""
    source = _Source(file, path)
    head = source.read(size)
    if head.startswith(GZIP_MAGIC):
        yield from _gunzip(head, source, size)
    elif is_zstd(head):
        yield from _zstd(head, source, size)
    else:
        while head:
            yield head
            head = source.read(size)


class _Source:
    """A file's bytes as they lie in it."""

    def __init__(self, file: BinaryIO, path: str | Path) -> None:
        self._file = file
        self._path = path

    def read(self, size: int) -> bytes:
        try:
            return self._file.read(size)
        except OSError as error:
            raise cannot_read(self._path, error) from error


def _gunzip(data: bytes, source: _Source, size: int) -> Iterator[bytes]:
    """All members of a gzip stream. Raises CutError behind the last byte that could be decompressed."""
    while data.startswith(GZIP_MAGIC):
        stream = isal_zlib.decompressobj(wbits=31)
        while not stream.eof:
            try:
                piece = stream.decompress(data, size)
            except isal_zlib.error as error:  # type: ignore[misc]  # isal has no stubs
                raise DamagedError(f"the gzip stream is damaged ({error})") from error
            if piece:
                yield piece
            data = stream.unconsumed_tail
            if not data and not stream.eof and not piece:
                data = source.read(_READ)
                if not data:
                    raise CutError("the gzip stream is cut")
        data = stream.unused_data
        while len(data) < len(GZIP_MAGIC) and (more := source.read(_READ)):
            data += more
    while data:
        if data.strip(b"\0"):
            raise DamagedError("bytes behind the gzip stream")
        data = source.read(_READ)


def _zstd(data: bytes, source: _Source, size: int) -> Iterator[bytes]:
    """All frames of a zstd stream."""
    try:
        import zstandard
    except ModuleNotFoundError as error:
        raise MissingExtraError("zstandard", "zstd", purpose="reading a zstd file") from error
    try:
        while data:
            stream = zstandard.ZstdDecompressor().decompressobj()
            while not stream.eof:
                if data[1:4] == _SKIPPABLE and is_zstd(data):
                    data = _behind_skippable(data, source)
                    if not data:
                        return
                    continue
                piece = stream.decompress(data)
                for start in range(0, len(piece), size):
                    yield piece[start : start + size]
                data = b"" if stream.eof else source.read(_READ)
                if not data and not stream.eof:
                    raise CutError("the zstd stream is cut")
            data = stream.unused_data or source.read(_READ)
    except zstandard.ZstdError as error:
        raise DamagedError(f"the zstd stream is damaged ({error})") from error


def _remote(url: str) -> BinaryIO:
    fsspec = _fsspec(url)
    try:
        return cast("BinaryIO", fsspec.open(url, "rb").open())
    except (ImportError, ValueError) as error:
        raise _unreachable(url, error) from error


def _fsspec(url: str) -> Any:
    try:
        import fsspec
    except ModuleNotFoundError as error:
        raise MissingExtraError("fsspec", "remote", purpose=f"reading {url}") from error
    return fsspec


def _unreachable(url: str, error: Exception) -> InputError:
    return InputError(f"cannot read {url}: {error}", hint="install the file system's package, or copy the files here")


def _behind_skippable(data: bytes, source: _Source) -> bytes:
    """RFC 8878: four bytes of magic, four of length, and that many to pass over."""
    while len(data) < 8 and (more := source.read(_READ)):
        data += more
    size = 8 + int.from_bytes(data[4:8], "little")
    while len(data) < size and (more := source.read(_READ)):
        data += more
    return data[size:] or source.read(_READ)


def listed(url: str, suffixes: tuple[str, ...]) -> list[str]:
    """The URL itself, or the files with one of `suffixes` in it where it is a folder. Raises InputError."""
    fsspec = _fsspec(url)
    try:
        system, path = fsspec.core.url_to_fs(url)
        if not system.isdir(path):
            return [url]
        names = [entry for entry in system.ls(path, detail=False) if str(entry).endswith(suffixes)]
        return [str(system.unstrip_protocol(name)) for name in sorted(names)]
    except (ImportError, ValueError, OSError) as error:
        raise _unreachable(url, error) from error


def _without_mark(text: bytes) -> bytes:
    """Blanks take the mark's place, so that every byte stays where it is in the file."""
    mark = codecs.BOM_UTF8
    return b" " * len(mark) + text[len(mark) :] if text.startswith(mark) else text
