"""Whose memory an address was: every storage that an operator is given or makes, from then until it is freed."""

from __future__ import annotations

import time
import weakref
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Any

from dsv4prof.faultrecord.layout import MADE
from dsv4prof.faultrecord.ring import RingWriter


class BufferTable:
    """The rows of live storages, and of those freed last. The oldest freed one gives its row away first.

    A storage is followed through a weak reference, which torch keeps until the memory itself goes back to its
    allocator. Where all rows are alive, what comes next is counted in `untold` and not followed. Memory that an
    operator takes and gives back inside is never seen.
    """

    def __init__(self, ring: RingWriter, *, step: Callable[[], int]) -> None:
        self._ring = ring
        self._step = step
        self._generations = count(1)
        self._fresh = iter(range(ring.buffers))
        self._freed: deque[int] = deque()
        self.live: dict[int, _Row] = {}
        self.untold = 0
        self.open = True

    def see(
        self, address: int, storage: Any, *, number: int, description: int, operator: int, stream: int, made: bool
    ) -> None:
        """Note a storage that begins at `address`, unless it is known. `description` and `operator` are names."""
        if address in self.live or not address:
            return
        slot = next(self._fresh, None)
        if slot is None:
            if not self._freed:
                self.untold += 1
                return
            slot = self._freed.popleft()
        row = _Row(slot, next(self._generations), address, storage.nbytes(), number, self._step(), description,
                   operator, MADE if made else 0, stream)  # fmt: skip
        row.reference = weakref.ref(storage, lambda _: self._gone(row))
        self.live[address] = row
        self._write(row)

    def _gone(self, row: _Row) -> None:
        if not self.open:
            return
        if self.live.get(row.address) is row:
            del self.live[row.address]
        self._write(row, freed=max(self._ring.last, row.made), freed_ns=time.monotonic_ns())
        self._freed.append(row.slot)

    def _write(self, row: _Row, *, freed: int = 0, freed_ns: int = 0) -> None:
        self._ring.buffer(
            row.slot,
            generation=row.generation,
            address=row.address,
            nbytes=row.nbytes,
            made=row.made,
            freed=freed,
            step=row.step,
            description=row.description,
            operator=row.operator,
            flags=row.flags,
            stream=row.stream,
            freed_ns=freed_ns,
        )


class _Row:
    """What stands in one row; the weak reference lives as long as it does."""

    __slots__ = (
        "address", "description", "flags", "generation", "made", "nbytes", "operator", "reference", "slot", "step",
        "stream",
    )  # fmt: skip

    def __init__(
        self, slot: int, generation: int, address: int, nbytes: int, made: int, step: int, description: int,
        operator: int, flags: int, stream: int,
    ) -> None:  # fmt: skip
        self.slot, self.generation, self.address, self.nbytes, self.made = slot, generation, address, nbytes, made
        self.step, self.description, self.operator, self.flags, self.stream = step, description, operator, flags, stream
        self.reference: Any = None
