"""Exact accounting of numbered things on the device: pages of the KV pools, and rows of the tail pools.

Nothing here touches a device. Whoever writes into a page later in stream order may be given it at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum


class PageState(Enum):
    """FREE: nobody's. OWNED: a request's alone. CACHED: the prefix tree's, whoever else reads it."""

    FREE = "free"
    OWNED = "owned"
    CACHED = "cached"


class PageAllocator:
    """Pages 1 to `count`, each in one state; page 0 is padding and never handed out. Every call is O(1) a page.

    Raises RuntimeError on a step that no page in its state may take, such as a second free: that is a fault of the
    engine, and what follows it would be one request's tokens in another's answer.
    """

    def __init__(self, count: int, *, noun: str = "page") -> None:
        self._noun = noun
        self._states = [PageState.FREE] * (count + 1)
        self._free = list(range(count, 0, -1))
        self._cached = 0

    @property
    def count(self) -> int:
        return len(self._states) - 1

    @property
    def num_free(self) -> int:
        return len(self._free)

    @property
    def num_cached(self) -> int:
        return self._cached

    @property
    def num_owned(self) -> int:
        return self.count - self.num_free - self.num_cached

    def state(self, page: int) -> PageState:
        return self._states[page]

    def allocate(self, count: int) -> list[int]:
        """`count` pages that nobody has; RuntimeError where there are fewer: ask `num_free` before."""
        if count > self.num_free:
            raise RuntimeError(f"{count} {self._noun}s are asked for, and {self.num_free} are free")
        pages = [self._free.pop() for _ in range(count)]
        for page in pages:
            self._states[page] = PageState.OWNED
        return pages

    def give_to_cache(self, page: int) -> None:
        """A request's page becomes the prefix tree's."""
        self._leave(page, PageState.OWNED)
        self._states[page] = PageState.CACHED
        self._cached += 1

    def free(self, pages: Iterable[int]) -> None:
        """Pages of a request back to nobody."""
        for page in pages:
            self._leave(page, PageState.OWNED)
            self._free.append(page)

    def free_cached(self, page: int) -> None:
        """A page of the prefix tree back to nobody."""
        self._leave(page, PageState.CACHED)
        self._cached -= 1
        self._free.append(page)

    def _leave(self, page: int, state: PageState) -> None:
        if not 0 < page <= self.count:
            raise RuntimeError(f"{self._noun} {page} does not exist")
        if self._states[page] is not state:
            raise RuntimeError(f"{self._noun} {page} is {self._states[page].value}, not {state.value}")
        self._states[page] = PageState.FREE
