"""Memory by address: which buffer an address lies in now, although allocators hand the same address out again."""

from __future__ import annotations

import msgspec

from dsv4prof.sync.runtime.hazards.events import HostOrDevice, Made


class Buffer(msgspec.Struct):
    """A storage, or a piece of memory that only a raw copy named."""

    number: int
    start: int
    nbytes: int
    place: HostOrDevice


class Buffers:
    """Numbers never come again; addresses do, once their buffer is freed."""

    def __init__(self) -> None:
        self._by_start: dict[int, Buffer] = {}
        self._made = 0

    def __len__(self) -> int:
        return len(self._by_start)

    def get(self, start: int) -> Buffer | None:
        return self._by_start.get(start)

    def make(self, start: int, nbytes: int, place: HostOrDevice, *, stream: int | None, site: int) -> Made:
        """A buffer that was not known."""
        self._made += 1
        self._by_start[start] = Buffer(self._made, start, nbytes, place)
        return Made(self._made, start, nbytes, place, stream, site)

    def containing(self, address: int) -> Buffer | None:
        """The buffer that an address points into. Walks through all of them: raw copies are rare."""
        exact = self._by_start.get(address)
        if exact is not None:
            return exact
        for buffer in self._by_start.values():
            if buffer.start <= address < buffer.start + buffer.nbytes:
                return buffer
        return None

    def free(self, start: int) -> Buffer | None:
        return self._by_start.pop(start, None)
