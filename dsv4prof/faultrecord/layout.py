"""How a fault record lies in its file: what a killed process has written must be readable without it.

One page of facts (JSON), one page of cells (8 bytes each, written in place), the names, and three tables of records of
fixed size. All integers are little-endian. A record begins with its sequence number and ends with the same number
turned by a constant; written in this order, a record whose ends do not agree is torn, and the reader leaves it out.
"""

from __future__ import annotations

import struct
from enum import IntEnum

MAGIC = b"DSV4FLT\x00"
VERSION = 1
SUFFIX = ".faultring"

FACTS_AT = 64
FACTS_SIZE = 4096 - FACTS_AT
CELLS_AT = 4096
CELLS_SIZE = 4096
NAMES_AT = CELLS_AT + CELLS_SIZE

# magic, version, bytes of facts, bytes of names, buffers, captured, launches; sizes of the records of each.
HEADER = struct.Struct("<8sIIQIII II")

TOUCHES = 8
# sequence, time, step, kind, touches, further touches, phase, span, operator, kernel, stream, thread, graph;
# a touch is address, bytes, description, flags; and the sequence again.
LAUNCH = struct.Struct("<QQiBBHIIIIQQQ" + "QQII" * TOUCHES + "Q")
NO_TOUCHES = (0, 0, 0, 0)
# generation, address, bytes, made or first seen at, freed at (0: alive), step, description, operator, flags, stream,
# time of the freeing; and the generation again.
BUFFER = struct.Struct("<QQQQQiIIIQQQ")

TURN = 0xA5A5_5A5A_C3C3_3C3C
"""What the last field of a whole record is turned by."""

WRITTEN = 1
"""Flag of a touch: the operator writes there."""
MADE = 1
"""Flag of a buffer: an operator's result; without it, it was there before and was first seen as an argument."""

HOST = (1 << 64) - 1
"""The stream of what runs on the host."""

CELL = struct.Struct("<Q")
LAST = struct.Struct("<QQ")
STREAM = struct.Struct("<QQQ")
STREAMS = 32
STREAMS_AT = CELLS_AT + 1024


class Cell(IntEnum):
    """What stands in the cells, by number."""

    LAST = 0
    """Sequence number of the last record begun."""
    PROGRESS_NS = 1
    """Monotonic time of the last record; right behind its number, so that both are one write."""
    STEP = 2
    """Steps begun, and not the number of one: it may start anywhere."""
    STEPS_DONE = 3
    PHASE = 4
    RETURNED = 5
    """The last launch whose call came back to the host."""
    ALIVE_NS = 6
    """Monotonic time at which the watchdog last looked."""
    ENDED = 7
    """1 when the watch was closed in good order."""
    NAMES_USED = 8
    CAPTURED = 9
    """Captured launches so far."""
    DEVICE_ERROR = 10
    """Name of the first error that the device gave when it was asked how far it is."""
    STALLED_NS = 11
    """Monotonic time at which the watchdog called it a hang."""
    NAMES_LOST = 12
    CAPTURING = 13
    TRACKED = 14
    """1 where completion is followed by events on the device; 0: only what the host came back from."""


class Kind(IntEnum):
    """What a record is about."""

    OPERATOR = 1
    KERNEL = 2
    GRAPH = 3
    STEP = 10
    STEP_END = 11
    PHASE = 12
    PHASE_END = 13
    NOTE = 14

    @property
    def launches(self) -> bool:
        """Whether the device may have been given work."""
        return self < Kind.STEP


def cell_at(cell: Cell) -> int:
    """Where a cell lies in the file."""
    return CELLS_AT + CELL.size * cell


def stream_at(slot: int) -> int:
    """Where a stream's progress lies: its number, the last launch marked, the last one known to be complete."""
    return STREAMS_AT + STREAM.size * slot
