"""The hot loops of a merge, twice: compiled, and in Python alone with the same results.

The compiled ones are used where their library is and loads; DSV4PROF_CORE=plain or =native in the environment decides
otherwise.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from typing import NamedTuple, Protocol

from dsv4prof.errors import UsageError
from dsv4prof.trace.columns import Ints, OutBlock, Places, Scanner
from dsv4prof.trace.core import native, plain, plain_encode, plain_lanes

CHOICE = "DSV4PROF_CORE"
NATIVE = "native"


class BlockEncoder(Protocol):
    """Writes the lines of one rank's blocks."""

    def block(self, block: OutBlock) -> bytes:
        """The lines of a block, joined by a comma and a line's end."""


class Core(NamedTuple):
    """One make of the hot loops."""

    name: str
    scanner: Callable[[], Scanner]
    encoder: Callable[[list[str], list[bytes], bytes], BlockEncoder]
    split_lanes: Callable[[Ints, Ints, Ints], Places]
    innermost: Callable[[Ints, Ints, Ints], Ints]


PLAIN = Core("plain", plain.PlainScanner, plain_encode.PlainEncoder, plain_lanes.split_lanes, plain_lanes.innermost)


@cache
def core() -> Core:
    """The make in use, chosen at the first call.

    Raises UsageError when the environment asks for a make that there is not.
    """
    choice = os.environ.get(CHOICE, "")
    if choice not in ("", PLAIN.name, NATIVE):
        raise UsageError(f"{CHOICE} is {choice!r}", hint=f"set {CHOICE} to {PLAIN.name} or {NATIVE}, or leave it unset")
    if choice == PLAIN.name:
        return PLAIN
    try:
        library = native.Native()
    except native.UnusableError as error:
        if choice == NATIVE:
            raise UsageError(f"{CHOICE} asks for the compiled core: {error}", hint=f"unset {CHOICE}") from error
        return PLAIN
    return Core(NATIVE, library.new_scanner, library.new_encoder, library.lanes, library.open_at)


def core_name() -> str:
    """ "native" or "plain": which make is in use."""
    return core().name


def scanner() -> Scanner:
    """A scanner for one file; it belongs to one thread at a time."""
    return core().scanner()


def json_encoder(words: list[str], places: list[bytes], prefix: bytes) -> BlockEncoder:
    """An encoder for the blocks of one rank, which keeps its encoded words.

    `words` (the scanner's) and `places` (`"pid":3,"tid":7` of each merged track) may grow between blocks; `prefix`
    (`3:`) makes the ids of asynchronous spans the rank's own.
    """
    return core().encoder(words, places, prefix)


def split_lanes(start: Ints, end: Ints, bounds: Ints) -> Places:
    """Lane (1, 2, ...) of each span: the first in which it nests, in its group `bounds[j]:bounds[j+1]`.

    Spans are ns, int64 (n,), parents first in each group; result int32 (n,), 1 outside every group. O(n log lanes).
    Raises ValueError when the bounds are not ascending places in the spans.
    """
    return core().split_lanes(start, end, bounds)


def innermost(start: Ints, end: Ints, at: Ints) -> Ints:
    """For each time the place of the span that was opened last and is still open, or -1.

    Spans (ns, int64 (n,)) are those of one track, parents first; times (ns, int64 (m,)) ascend; result int64 (m,). A
    span is open at its start, and no longer at its end. Raises ValueError when the times do not ascend.
    """
    return core().innermost(start, end, at)
