"""gzip, read as far as it goes: a disk that was full or a transfer that broke still left most of a trace.

The standard readers give nothing when a checksum at the end is wrong. RFC 1952 describes the format.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import msgspec

GZIP_MAGIC = b"\x1f\x8b"
_HEADER = 10
_TRAILER = 8
_HEADER_CHECKSUM, _EXTRA, _NAME, _COMMENT = 2, 4, 8, 16
_CHUNK = 1 << 10


class Inflated(msgspec.Struct, frozen=True):
    """Decompressed bytes. `cut` says why something is missing behind them, `notes` what is odd though all is there."""

    data: bytes
    cut: str | None
    notes: list[str]


def inflate(data: bytes) -> Inflated:
    """Everything in the members of a gzip file up to the first damage."""
    out: list[bytes] = []
    notes: list[str] = []
    position = 0
    while data.startswith(GZIP_MAGIC, position):
        text, end, cut = _member(data, position)
        out.append(text)
        if cut is not None:
            return Inflated(b"".join(out), cut, notes)
        trailer = data[end : end + _TRAILER]
        if len(trailer) < _TRAILER:
            notes.append("the gzip checksum is cut off")
        elif trailer != zlib.crc32(text).to_bytes(4, "little") + (len(text) % 2**32).to_bytes(4, "little"):
            notes.append("the gzip checksum does not fit the data")
        position = end + _TRAILER
    garbage = len(data[position:].strip(b"\0"))
    if garbage:
        notes.append(f"{garbage:,} bytes behind the gzip stream were not read")
    return Inflated(b"".join(out), None, notes)


def _member(data: bytes, start: int) -> tuple[bytes, int, str | None]:
    """(text, where its deflate stream ends, why it is not whole) of the member that starts there."""
    body = _body(data, start)
    if body is None:
        return b"", len(data), "the gzip stream is cut"
    stream = zlib.decompressobj(-zlib.MAX_WBITS)
    out: list[bytes] = []
    for place in range(body, len(data), _CHUNK):
        before = stream.copy()
        try:
            out.append(stream.decompress(data[place : place + _CHUNK]))
        except zlib.error as error:
            out += _up_to_the_fault(before, data[place : place + _CHUNK])
            return b"".join(out), len(data), f"the gzip stream is damaged ({error})"
        if stream.eof:
            return b"".join(out), min(place + _CHUNK, len(data)) - len(stream.unused_data), None
    return b"".join(out), len(data), "the gzip stream is cut"


def _up_to_the_fault(stream: zlib._Decompress, piece: bytes) -> Iterator[bytes]:
    """What a damaged piece gives before the byte that damages it: of the piece as a whole zlib gives nothing."""
    for byte in piece:
        try:
            yield stream.decompress(bytes([byte]))
        except zlib.error:
            return


def _body(data: bytes, start: int) -> int | None:
    """Where the deflate stream of a member begins: behind a header with optional fields; None when that is cut."""
    if len(data) < start + _HEADER:
        return None
    flags = data[start + 3]
    place = start + _HEADER
    if flags & _EXTRA:
        place += 2 + int.from_bytes(data[place : place + 2], "little")
    for field in (_NAME, _COMMENT):
        if flags & field:
            place = data.find(b"\0", place) + 1
            if not place:
                return None
    place += 2 if flags & _HEADER_CHECKSUM else 0
    return place if place < len(data) else None
