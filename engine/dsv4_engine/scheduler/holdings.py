"""What requests hold of the caches: a slot, pages, a place in the prefix tree, and rows for tails to come.

Lengths on the host trail those on the device by the steps in flight, so a holding keeps bounds of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from dsv4_engine.cache.pages import PageAllocator
from dsv4_engine.cache.radix import RadixCache, RadixNode
from dsv4_engine.plan import TableWrite, TailLoad, TailSave
from dsv4_engine.request import Request


@dataclass(eq=False, kw_only=True)
class Holding:
    """One request's part. pages: of its positions, in order; those down to `node` are the tree's, the others its own.

    node: the deepest node of the tree that it has locked. tails: rows reserved for prefixes that end at these
    boundaries, not known to be saved yet. low, high: bounds of the cached tokens once all launched steps are done.
    in_flight: launched steps that will give it tokens and are not read yet. limit: no position from here on is kept.
    """

    request: Request
    slot: int
    pages: list[int]
    node: RadixNode
    limit: int
    tails: dict[int, int] = field(default_factory=dict)
    low: int = 0
    high: int = 0
    in_flight: int = 0

    @property
    def own_pages(self) -> list[int]:
        return self.pages[self.node.depth :]

    def advance(self, rows: int) -> None:
        """A decode step of `rows` rows is launched: it adds one token at least."""
        self.low += 1
        self.high += rows
        self.in_flight += 1

    def settle(self, rows: int) -> None:
        """The oldest step in flight is read; those after it are decode steps."""
        self.in_flight -= 1
        self.low = self.request.cached_len + self.in_flight
        self.high = self.request.cached_len + self.in_flight * rows


class Holdings:
    """Slots, pages and tails, and who has them. `rows`: rows of a request in a decode step.

    Every change of the request table is noted, and `take_writes` hands the notes to the next plan.
    """

    def __init__(
        self, *, max_requests: int, num_pages: int, page_size: int, num_tails: int, rows: int, lookahead: int
    ) -> None:
        self.page_size, self._rows, self._lookahead = page_size, rows, lookahead
        self.pages = PageAllocator(num_pages)
        self.tails = PageAllocator(num_tails, noun="tail")
        self.tree = RadixCache(self.pages, self.tails, page_size=page_size, lookahead=lookahead)
        self._free_slots = list(range(max_requests, 0, -1))
        self._columns = [0] * (max_requests + 1)  # of each slot's row in the table, how many are not page 0
        self._writes: dict[tuple[int, int], int] = {}

    @property
    def num_free_slots(self) -> int:
        return len(self._free_slots)

    @property
    def available(self) -> int:
        """Pages that can be had without taking any from a request."""
        return self.pages.num_free + self.tree.num_evictable

    def pages_for(self, positions: int) -> int:
        return -(-positions // self.page_size)

    def limit(self, request: Request) -> int:
        """Positions that can matter: the last step that may add a token writes its rows below this one.

        What a step writes beyond, in a window whose end is dropped, goes to the padding page.
        """
        return len(request.prompt) + request.max_output + self._rows - 2

    def most_pages(self, request: Request) -> int:
        """Pages of a request at its end."""
        return self.pages_for(self.limit(request))

    def admit(self, request: Request, *, reserve: int) -> tuple[Holding, TailLoad | None] | None:
        """A slot and the pages of all tokens to prefill, some of them from the tree, whose tail is then to be loaded.

        None where no slot is free, or where fewer than `reserve` pages would be left, and one for itself if it may
        grow out of those.
        """
        node = self._lock_prefix(request, reserve=reserve)
        if node is None:
            return None
        own = self._allocate(self.pages_for(request.prefill_len) - node.depth)
        slot = self._free_slots.pop()
        pages = [part.page for part in node.path()] + own
        holding = Holding(request=request, slot=slot, pages=pages, node=node, limit=self.limit(request))
        request.slot = slot
        self._write_row(holding)
        if node.tail is None:
            return holding, None
        return holding, TailLoad(slot=slot, boundary=node.depth * self.page_size, tail=node.tail)

    def could_admit(self, request: Request, *, reserve: int) -> bool:
        """Whether `admit` would."""
        node = self._lock_prefix(request, reserve=reserve)
        if node is None:
            return False
        self.tree.unlock(node)
        return True

    def missing(self, holding: Holding) -> int:
        """Pages that it lacks for one more decode step, whatever the steps in flight accept."""
        return max(self.pages_for(min(holding.high + self._rows, holding.limit)) - len(holding.pages), 0)

    def grow(self, holding: Holding) -> None:
        """The missing pages, which must be available."""
        for page in self._allocate(self.missing(holding)):
            self._write(holding.slot, len(holding.pages), page)
            holding.pages.append(page)
        self._columns[holding.slot] = max(self._columns[holding.slot], len(holding.pages))

    def reserve_tails(self, holding: Holding, *, low: int, high: int, written: int) -> list[TailSave]:
        """Saves for the boundaries above `low` and up to `high` that a step may reach.

        Only a boundary above `written`, up to which steps in flight may have come, is begun to be saved: of others it
        would not be known whether a step without the save had passed it.
        """
        saves = []
        last = min(high, holding.limit) // self.page_size * self.page_size
        for boundary in range((low // self.page_size + 1) * self.page_size, last + 1, self.page_size):
            if boundary not in holding.tails and (boundary <= written or not self._reserve_tail(holding, boundary)):
                continue
            saves.append(TailSave(slot=holding.slot, boundary=boundary, tail=holding.tails[boundary]))
        return saves

    def publish(self, holding: Holding, cached: int) -> None:
        """Of `cached` tokens, which are known and so is the one after them, give the tree what has a tail."""
        saved = sorted(boundary for boundary in holding.tails if boundary <= cached)
        if not saved:
            return
        tokens = holding.request.tokens
        for boundary in saved:
            tail, end = holding.tails.pop(boundary), boundary // self.page_size
            first = holding.node.depth
            node = self.tree.insert(holding.node, tokens[: boundary + self._lookahead], holding.pages[first:end], tail)
            self.tree.lock(node, below=holding.node)
            holding.node = node
            for part in node.path()[first:]:
                self._use_cached(holding, part)

    def release(self, holding: Holding) -> None:
        """Give everything back; pages that the tree has stay there."""
        self.tree.unlock(holding.node)
        self.pages.free(holding.own_pages)
        self.tails.free(holding.tails.values())
        self._free_slots.append(holding.slot)
        holding.request.slot = None

    def take_writes(self) -> tuple[TableWrite, ...]:
        """All changes of the table since the last call."""
        writes = tuple(TableWrite(slot=slot, column=column, page=page) for (slot, column), page in self._writes.items())
        self._writes.clear()
        return writes

    def _lock_prefix(self, request: Request, *, reserve: int) -> RadixNode | None:
        """The locked end of the longest usable prefix, if slot and pages for the rest are there; else None."""
        pages = self.pages_for(request.prefill_len)
        if not self._free_slots or pages + reserve > self.pages.num_free + self.pages.num_cached:
            return None  # whatever the tree has of it
        node = self.tree.match(request.tokens)
        self.tree.lock(node)
        own, grows = pages - node.depth, self.most_pages(request) > pages
        if own + grows + reserve <= self.available:
            return node
        self.tree.unlock(node)
        return None

    def _use_cached(self, holding: Holding, node: RadixNode) -> None:
        """The page at the node's place is the tree's from now on; where it had one already, the own copy is freed.

        Steps in flight may still read that copy, and come before whatever is written to it next.
        """
        index = node.depth - 1
        if holding.pages[index] != node.page:
            self.pages.free([holding.pages[index]])
            holding.pages[index] = node.page
            self._write(holding.slot, index, node.page)

    def _allocate(self, count: int) -> list[int]:
        self.tree.evict_pages(count - self.pages.num_free)
        return self.pages.allocate(count)

    def _reserve_tail(self, holding: Holding, boundary: int) -> bool:
        if self.tails.num_free == 0 and not self.tree.evict_tail():
            return False
        [holding.tails[boundary]] = self.tails.allocate(1)
        return True

    def _write_row(self, holding: Holding) -> None:
        """A new request's row; what the slot's last one had beyond it becomes page 0, since it may be others' now."""
        used = len(holding.pages)
        columns: Sequence[int] = holding.pages + [0] * (self._columns[holding.slot] - used)
        for column, page in enumerate(columns):
            self._write(holding.slot, column, page)
        self._columns[holding.slot] = used

    def _write(self, slot: int, column: int, page: int) -> None:
        self._writes[slot, column] = page
