"""Whole packets: what stands before the events of a file or of a rank."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from dsv4prof.trace.perfetto.proto import message, number, text
from dsv4prof.trace.perfetto.schema import (
    BOOTTIME,
    NEEDS_STATE,
    REALTIME,
    STATE_CLEARED,
    ClockReading,
    Clocks,
    InternedString,
    Packet,
    Trace,
)

_NAMES_A_PACKET = 1_000


def packet(*parts: bytes) -> bytes:
    return message(Trace.PACKET, b"".join(parts))


def clock_snapshot(at_ns: int) -> bytes:
    """Says that the trace's times are those of the wall clock, so that a viewer can show the date."""
    readings = (
        message(Clocks.CLOCKS, number(ClockReading.CLOCK, clock) + number(ClockReading.TIME, at_ns))
        for clock in (BOOTTIME, REALTIME)
    )
    return packet(message(Packet.CLOCK_SNAPSHOT, b"".join(readings)))


def note(content: object) -> bytes:
    """A packet for our own reader alone."""
    return packet(message(Packet.OWN_NOTE, msgspec.json.encode(content)))


def interned(sequence: int, strings: Iterable[tuple[int, int, str]]) -> Iterator[bytes]:
    """Packets of a sequence's strings, each (field of InternedData, number, text); the first clears its state."""
    held: list[bytes] = []
    flags = STATE_CLEARED
    for field, iid, value in strings:
        held.append(message(field, number(InternedString.ID, iid) + text(InternedString.TEXT, value)))
        if len(held) == _NAMES_A_PACKET:
            yield _interned(sequence, flags, held)
            held, flags = [], NEEDS_STATE
    if held or flags == STATE_CLEARED:
        yield _interned(sequence, flags, held)


def _interned(sequence: int, flags: int, held: list[bytes]) -> bytes:
    return packet(
        number(Packet.SEQUENCE, sequence), number(Packet.FLAGS, flags), message(Packet.INTERNED, b"".join(held))
    )
