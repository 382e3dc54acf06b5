"""Protocol buffers at the level of the wire: numbers, fields, nothing of a schema.

Numbers may be padded to a fixed width, which every decoder takes; columns of them are then built in one go.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_VARINT_BITS = 70
Bytes = npt.NDArray[np.uint8]


class BrokenMessageError(ValueError):
    """The bytes are no message: cut, or of another format."""


def varint(value: int) -> bytes:
    """An unsigned number, or a negative one of 64 bits as its two's complement."""
    value &= 0xFFFFFFFFFFFFFFFF
    if value < 128:
        return _SMALL[value]
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


_SMALL = [bytes([value]) for value in range(128)]


def tag(field: int, wire: int) -> bytes:
    return varint(field << 3 | wire)


def number(field: int, value: int) -> bytes:
    return tag(field, VARINT) + varint(value)


def message(field: int, content: bytes) -> bytes:
    """A field of bytes: a string, or a message inside a message."""
    return tag(field, BYTES) + varint(len(content)) + content


def text(field: int, value: str) -> bytes:
    return message(field, value.encode(errors="replace"))


def width(largest: int) -> int:
    """How many bytes a number takes."""
    return max(1, -(-int(largest).bit_length() // 7))


def padded(values: npt.NDArray[np.int64], size: int) -> Bytes:
    """(n,) numbers that are not negative -> (n, size) bytes, each a varint of exactly that size."""
    shifts = np.arange(size, dtype=np.uint64) * np.uint64(7)
    groups = values.astype(np.uint64)[:, None] >> shifts & np.uint64(127)
    groups[:, :-1] |= np.uint64(128)
    return groups.astype(np.uint8)


def fixed(content: bytes, rows: int) -> Bytes:
    """The same bytes in every row."""
    return np.broadcast_to(np.frombuffer(content, np.uint8), (rows, len(content)))


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """(value, the place behind it). Raises BrokenMessageError."""
    value = shift = 0
    try:
        while shift < _VARINT_BITS:
            byte = data[at]
            at += 1
            if byte < 128:
                return (value | byte << shift) & 0xFFFFFFFFFFFFFFFF, at
            value |= (byte & 127) << shift
            shift += 7
    except IndexError:
        pass
    raise BrokenMessageError(f"a number is cut or too long at byte {at:,}")


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """(field, value) of a message: numbers of any wire type as unsigned integers, the rest as bytes.

    Raises BrokenMessageError where it ends early or has a wire type that nobody writes.
    """
    at, end = 0, len(data)
    while at < end:
        key = data[at]
        if key < 128:
            at += 1
        else:
            key, at = read_varint(data, at)
        wire = key & 7
        if wire == VARINT:
            number = data[at] if at < end else 128
            if number < 128:
                at += 1
            else:
                number, at = read_varint(data, at)
            value: int | bytes = number
        elif wire == BYTES:
            size = data[at] if at < end else 128
            if size < 128:
                at += 1
            else:
                size, at = read_varint(data, at)
            if at + size > end:
                raise BrokenMessageError(f"a field of {size:,} bytes is cut at byte {at:,}")
            value = data[at : at + size]
            at += size
        elif wire in (FIXED64, FIXED32):
            size = 8 if wire == FIXED64 else 4
            if at + size > end:
                raise BrokenMessageError(f"a number is cut at byte {at:,}")
            value = int.from_bytes(data[at : at + size], "little")
            at += size
        else:
            raise BrokenMessageError(f"unknown wire type {wire} at byte {at:,}")
        yield key >> 3, value


def signed(value: int) -> int:
    """A 64-bit number as two's complement."""
    return value - (1 << 64) if value >> 63 else value
