"""Writes of staging memory that no operator makes: through numpy, ctypes or C++.

The host may read its own memory at any time without waiting. So a sum of the bytes is kept of every source of a pending
upload; if it differs later, somebody wrote them, and the hazard is the same as with a write that was seen.
"""

from __future__ import annotations

import ctypes
import mmap
import zlib
from functools import cache
from typing import Any, NamedTuple

from dsv4prof.sync.runtime.hazards.events import Span

# Of larger sources both ends and pieces between are summed.
_WHOLE = 1 << 20
_PIECES, _PIECE = 64, 4096


class _Source(NamedTuple):
    span: Span
    address: int
    total: int


class Contents:
    """Sums of what uploads were given, the last of each range of a buffer."""

    def __init__(self) -> None:
        self._sources: dict[int, dict[tuple[int, int], _Source]] = {}

    def watch(self, span: Span, start: int) -> None:
        """Remember the bytes of a span of the buffer that starts at `start`; they must be host memory that exists."""
        address = start + span.low
        total = _sum(address, span.high - span.low)
        self._sources.setdefault(span.buffer, {})[span.low, span.high] = _Source(span, address, total)

    def watched(self) -> list[int]:
        return list(self._sources)

    def changed(self, buffer: int) -> list[Span]:
        """Spans whose bytes are no longer those given; each is told once and remembered as it is now."""
        spans = []
        held = self._sources.get(buffer, {})
        for key, source in list(held.items()):
            total = _sum(source.address, source.span.high - source.span.low)
            if total != source.total:
                held[key] = source._replace(total=total)
                spans.append(source.span)
        return spans

    def forget(self, buffer: int) -> None:
        self._sources.pop(buffer, None)

    def renew(self, buffer: int) -> None:
        """The bytes were changed by something that is known."""
        if buffer in self._sources:
            self.changed(buffer)


def _sum(address: int, nbytes: int) -> int:
    """0 where the memory is no longer there."""
    if not _is_mapped(address, nbytes):
        return 0
    if nbytes <= _WHOLE:
        return zlib.crc32(ctypes.string_at(address, nbytes))
    total, stride = nbytes, (nbytes - _PIECE) // (_PIECES - 1)
    for piece in range(_PIECES):
        total = zlib.crc32(ctypes.string_at(address + piece * stride, _PIECE), total)
    return total


def _is_mapped(address: int, nbytes: int) -> bool:
    """Memory that was unmapped behind our back would end the process when it is read."""
    mincore = _mincore()
    if mincore is None:
        return True
    first = address - address % mmap.PAGESIZE
    pages = -(-(address + nbytes - first) // mmap.PAGESIZE)
    resident = (ctypes.c_ubyte * pages)()
    return bool(mincore(ctypes.c_void_p(first), ctypes.c_size_t(pages * mmap.PAGESIZE), resident) == 0)


@cache
def _mincore() -> Any:
    try:
        return ctypes.CDLL(None).mincore
    except (OSError, AttributeError):
        return None
