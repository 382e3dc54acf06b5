"""One gzip stream put together of parts that were compressed apart, in whatever process, with the same bytes always.

Each part ends on a byte (RFC 1951: a full flush), so that they can follow each other; the checksum of the whole is
computed from those of the parts, by the arithmetic of RFC 1952's CRC-32 over GF(2).
"""

from __future__ import annotations

import zlib
from typing import BinaryIO, NamedTuple

from isal import isal_zlib

_LEVEL = 1
_HEADER = b"\x1f\x8b\x08\0\0\0\0\0\0\xff"
# A last block without content.
_END = b"\x03\x00"
_POLYNOMIAL = 0xEDB88320


class Part(NamedTuple):
    """A part's own checksum and how many bytes it holds, decompressed."""

    crc: int
    size: int


class PartWriter:
    """Compresses one part into a file."""

    def __init__(self, file: BinaryIO, *, compress: bool) -> None:
        self._file = file
        self._stream = isal_zlib.compressobj(level=_LEVEL, wbits=-15) if compress else None
        self._crc = 0
        self._size = 0

    def write(self, data: bytes) -> None:
        self._size += len(data)
        if self._stream is None:
            self._file.write(data)
            return
        self._crc = isal_zlib.crc32(data, self._crc)
        self._file.write(self._stream.compress(data))

    def close(self) -> Part:
        """End the part; the file stays open."""
        if self._stream is not None:
            self._file.write(self._stream.flush(zlib.Z_FULL_FLUSH))
        return Part(self._crc, self._size)


def header(*, compress: bool) -> bytes:
    """What comes before the first part."""
    return _HEADER if compress else b""


def trailer(parts: list[Part], *, compress: bool) -> bytes:
    """What comes behind the last part."""
    if not compress:
        return b""
    crc = size = 0
    for part in parts:
        crc = crc32_combine(crc, part.crc, part.size)
        size += part.size
    return _END + crc.to_bytes(4, "little") + (size % 2**32).to_bytes(4, "little")


def crc32_combine(first: int, second: int, second_size: int) -> int:
    """The CRC-32 of two texts one after the other, from theirs and the length of the second."""
    return _multiply(_power_of_x(8 * second_size), first) ^ second


def _power_of_x(exponent: int) -> int:
    """x to a power, modulo the polynomial; bits are reversed, so that 1 is the highest one."""
    result, square = 1 << 31, 1 << 30
    while exponent:
        if exponent & 1:
            result = _multiply(result, square)
        square = _multiply(square, square)
        exponent >>= 1
    return result


def _multiply(a: int, b: int) -> int:
    product = 0
    for bit in range(31, -1, -1):
        if a >> bit & 1:
            product ^= b
        b = b >> 1 ^ (_POLYNOMIAL if b & 1 else 0)
    return product
