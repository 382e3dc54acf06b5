"""An address in a message is a number; here it becomes a buffer, alive or freed, and how far in or past it the device
went.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal

import msgspec

from dsv4prof.faultrecord.reader import Buffer, FaultRecord

Relation = Literal["inside", "after", "before", "unknown"]

NEAR_BYTES = 16 << 20
"""How far from a buffer an address may lie to be told with it: an index far out of range leaves every buffer."""


class Place(msgspec.Struct, frozen=True):
    """Where an address lies. `offset` counts from the buffer's start (inside), from its end (after) or to its start
    (before); `page_bytes` over 1 says how exact the address, and so the offset, is.

    `also` are other buffers of which as much can be said, most likely first.
    """

    address: int
    relation: Relation
    buffer: Buffer | None
    offset: int
    page_bytes: int
    also: tuple[Buffer, ...] = ()

    @property
    def freed(self) -> bool:
        return self.buffer is not None and self.buffer.freed > 0


def place_address(record: FaultRecord, address: int, *, page_bytes: int = 1) -> Place:
    """Map an address to what the record knows of memory.

    An address that is exact to a page may lie anywhere in it: a buffer that shares the page counts. A live buffer comes
    before a freed one at the same place, the last freed before older ones, inside before beside.
    """
    last = address + page_bytes
    inside = [each for each in record.buffers if each.address < last and address < each.end]
    if inside:
        best = sorted(inside, key=_likely)
        buffer = best[0]
        offset = max(address - buffer.address, 0)
        return Place(address, "inside", buffer, offset, page_bytes, tuple(best[1:4]))
    after = _nearest(record.buffers, lambda each: address - each.end)
    before = _nearest(record.buffers, lambda each: each.address - address)
    found = [
        (distance, relation, each) for relation, (distance, each) in (("after", after), ("before", before)) if each
    ]
    if not found:
        return Place(address, "unknown", None, 0, page_bytes)
    # An index runs past the end far more often than before the start.
    distance, relation, nearest = min(found, key=lambda item: item[0] * (1 if item[1] == "after" else 8))
    others = tuple(each for _, _, each in found if each is not nearest)
    return Place(address, "after" if relation == "after" else "before", nearest, distance, page_bytes, others)


def words_of(place: Place) -> str:
    """Where the address lies, as a sentence."""
    where = f"address {place.address:#x}"
    if place.address == 0:
        return f"{where} is a null pointer, or the driver did not tell the address"
    if place.buffer is None:
        return (
            f"{where} lies in no buffer that the watch saw, nor within {NEAR_BYTES >> 20} MiB of one: a wild index, "
            "a pointer that was never valid, or memory that no operator was given"
        )
    exact = " (the message is exact to a page)" if place.page_bytes > 1 else ""
    how = {
        "inside": f"is {place.offset:,} bytes into",
        "after": f"is {place.offset:,} bytes past the end of",
        "before": f"is {place.offset:,} bytes before the start of",
        "unknown": "",
    }[place.relation]
    return f"{where} {how} {describe(place.buffer)}{exact}"


def describe(buffer: Buffer) -> str:
    """A buffer in words: what it held, where, how large, and its life in sequence numbers."""
    name = buffer.what or "a buffer"
    if buffer.made_here:
        came = f"made by {buffer.operator or 'an operator'} (launch {buffer.made})"
    else:
        came = f"first seen as an argument of {buffer.operator or 'an operator'} (launch {buffer.made})"
    life = f"freed after launch {buffer.freed}" if buffer.freed else "alive"
    return f"{name} at {buffer.address:#x}..{buffer.end:#x} ({buffer.nbytes:,} bytes), {came}, {life}"


def _likely(buffer: Buffer) -> tuple[bool, int]:
    return buffer.freed > 0, -(buffer.freed or buffer.made)


def _nearest(buffers: Iterable[Buffer], distance: Callable[[Buffer], int]) -> tuple[int, Buffer | None]:
    """The nearest one on one side; of several at the same distance the likeliest."""
    best: tuple[int, Buffer | None] = (NEAR_BYTES + 1, None)
    for each in buffers:
        far = distance(each)
        closer = 0 <= far < best[0]
        likelier = far == best[0] and best[1] is not None and _likely(each) < _likely(best[1])
        if closer or likelier:
            best = (far, each)
    return best
