"""A block of trace events as columns: what a scan of the text gives, and what an encoder writes from.

One row an event, in file order, times exact; names are numbers into tables, and arguments stay where they lie in the
text. A million events are 64 MB this way, where Python objects would take ten times as much.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from dsv4prof.model.event import Track
from dsv4prof.model.trace import MergedTrack

# Bits of `flags`.
HAS_ID = 1
ID_IS_WORD = 2
BINDS_ENCLOSING = 4

EVENT = np.dtype(
    [
        ("ts", "<i8"),  # ns as the file says it, without its base time
        ("dur", "<i8"),  # ns; 0 but for X
        ("id", "<i8"),  # an integer id, or with ID_IS_WORD a place in `words`
        ("name", "<i4"),  # a place in `words`
        ("cat", "<i4"),  # a place in `words`
        ("track", "<i4"),  # a place in `tracks`
        ("args_at", "<u4"),  # where the arguments' object lies in the text; length 0: there are none
        ("args_len", "<u4"),
        ("ph", "u1"),  # the phase letter; I is read as i
        ("scope", "u1"),  # the letter of an instant's scope
        ("flags", "u1"),
        ("pad", "u1"),
    ]
)

Rows = npt.NDArray[np.void]
Ints = npt.NDArray[np.int64]
Places = npt.NDArray[np.int32]


class Scan(NamedTuple):
    """What a scanner made of a text: `rows` of the regular elements before `consumed`, and why it stopped there.

    `stop`: "more" (the text ends inside an element or between two), "closed" (`consumed` is at the array's `]`),
    "odd" (text[consumed:end] is one element in valid JSON that needs the general reader), "broken" (no JSON there).
    """

    rows: Rows
    consumed: int
    stop: str
    end: int


class Scanner(Protocol):
    """Reads the elements of one file's `traceEvents`; its tables grow with the file.

    `words` and `tracks` are keyed by the text of the file, so that two spellings of one string are two words.
    """

    words: list[str]
    tracks: list[Track]

    def scan(self, text: bytes, start: int = 0, *, canonical: bool = False) -> Scan:
        """Read from `start`, which is before, between or behind elements; leading blanks and commas are passed over."""


class Block(NamedTuple):
    """Events of one file: the text that their arguments lie in, and their rows."""

    text: bytes
    rows: Rows


class OutBlock(NamedTuple):
    """Events as they go into a merged trace, in the order in which they are written.

    `ts` and `dur` are ns since the merged trace's origin; `place` is the row's place in the rank's list of merged
    tracks; `ids` is a flow's number in the merged trace, 0 for everything else.
    """

    text: bytes
    rows: Rows
    ts: Ints
    dur: Ints
    place: Places
    ids: Ints


class SegmentEncoder(Protocol):
    """Writes one rank's events in some format; segments of several ranks follow each other in one file."""

    def begin(self) -> bytes:
        """What describes the rank's tracks."""

    def block(self, block: OutBlock) -> bytes:
        """The events of a block."""

    def end(self) -> bytes:
        """What closes the rank's segment."""


class SegmentHead(NamedTuple):
    """What an encoder knows of a rank before its first block. `words` are the scanner's and may still grow.

    `origin_ns` is the absolute time (ns since 1970) of the merged trace's zero; `prefix` (`3:`) makes the ids of
    asynchronous spans the rank's own.
    """

    rank: int
    tracks: list[MergedTrack]
    words: list[str]
    origin_ns: int
    prefix: str = ""
