"""Prefixes whose pages are kept for the next request that begins alike: a tree of pages, keyed by their tokens.

A request may continue from a prefix only where its *tail* was kept too: the window rows and compressor state of its
end, which live in rings of a slot and not in pages. So a node without a tail is a path to deeper ones and no end of a
hit. Tails are evicted apart from pages; what then leads nowhere goes with them.

With an MTP layer the row at position p depends on the token at p + 1. A page is therefore keyed by its own tokens and
the one after them (`lookahead` 1), which makes every hit exact for the MTP cache as well.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count

from dsv4_engine.cache.pages import PageAllocator


@dataclass(eq=False, kw_only=True)
class RadixNode:
    """One page. depth: pages from the root to it, itself included. locks: of requests that use it or what follows it.

    last_used: a counter's value. key: the page's tokens and the lookahead after them.
    """

    key: tuple[int, ...] = ()
    page: int = 0
    depth: int = 0
    parent: RadixNode | None = None
    tail: int | None = None
    locks: int = 0
    last_used: int = 0
    children: dict[tuple[int, ...], RadixNode] = field(default_factory=dict)

    def path(self) -> list[RadixNode]:
        """From the first page to this one; empty for the root."""
        nodes: list[RadixNode] = []
        node = self
        while node.parent is not None:
            nodes.append(node)
            node = node.parent
        return nodes[::-1]


class RadixCache:
    """The tree, with its pages and tails accounted in two allocators that requests share."""

    def __init__(self, pages: PageAllocator, tails: PageAllocator, *, page_size: int, lookahead: int) -> None:
        self._pages, self._tails = pages, tails
        self._page_size, self._lookahead = page_size, lookahead
        self.root = RadixNode()
        self._clock = count(1)
        self._order = count()
        self._unlocked = 0
        # Unlocked leaves by last use; an entry that no longer describes its node is skipped when it comes up.
        self._leaves: list[tuple[int, int, RadixNode]] = []
        self._tailed: dict[RadixNode, None] = {}  # least recently used first

    @property
    def num_evictable(self) -> int:
        """Pages that `evict_pages` could free now."""
        return self._unlocked

    def match(self, tokens: Sequence[int]) -> RadixNode:
        """The deepest node with a tail whose prefix `tokens` begins with, and at least one token more; or the root.

        It and its path count as used.
        """
        node, best = self.root, self.root
        now = next(self._clock)
        while (child := self._child(node, tokens)) is not None:
            self._touch(child, now)
            node = child
            if child.tail is not None:
                best = child
        if best.tail is not None:
            self._use_tail(best)
        return best

    def insert(self, start: RadixNode, tokens: Sequence[int], pages: Sequence[int], tail: int) -> RadixNode:
        """Continue the path of `start` with `pages`, which hold `tokens` from there on; the tail is of their end.

        tokens: the whole prefix, and the lookahead after it. Pages that the tree has already stay their owner's, the
        others become the tree's, and so does the tail unless the last node has one (then it is freed). Returns that
        node, which the caller locks before anything else happens.
        """
        node, now = start, next(self._clock)
        for page in pages:
            child = self._child(node, tokens, whole=True)
            if child is None:
                child = self._add(node, tokens, page)
            self._touch(child, now)
            node = child
        assert node is not self.root, "nothing to insert"
        if node.tail is None:
            self._tails.give_to_cache(tail)
            node.tail = tail
        else:
            self._tails.free([tail])
        self._use_tail(node)
        return node

    def lock(self, node: RadixNode, *, below: RadixNode | None = None) -> None:
        """Keep a node and its path, down to `below` (exclusive), which is locked already; by default from the root."""
        walk: RadixNode | None = node
        while walk is not None and walk is not below and walk is not self.root:
            if walk.locks == 0:
                self._unlocked -= 1
            walk.locks += 1
            walk = walk.parent

    def unlock(self, node: RadixNode) -> None:
        """Take one lock from a node and its whole path; what leads nowhere without it goes."""
        walk, now = node, next(self._clock)
        while walk.parent is not None:
            if walk.locks == 0:
                raise RuntimeError(f"the node of page {walk.page} is not locked")
            walk.locks -= 1
            walk.last_used = now
            if walk.locks == 0:
                self._unlocked += 1
                self._offer(walk)
            walk = walk.parent
        self._prune(node)

    def evict_pages(self, wanted: int) -> int:
        """Free at least `wanted` pages, least recently used leaves first, or all that can be; returns how many."""
        freed = 0
        while freed < wanted and self._leaves:
            used, _, leaf = heapq.heappop(self._leaves)
            if self._is_free_leaf(leaf) and leaf.last_used == used:
                freed += self._remove_up(leaf)
        return freed

    def evict_tail(self) -> bool:
        """Free the least recently used tail; False where the tree has none."""
        node = next(iter(self._tailed), None)
        if node is None:
            return False
        self._drop_tail(node)
        self._prune(node)
        return True

    def flush(self) -> None:
        """Free everything; RuntimeError while a node is locked."""
        if any(node.locks for node in self.nodes()):
            raise RuntimeError("the prefix cache is in use")
        self.evict_pages(self._unlocked)

    def nodes(self) -> Iterator[RadixNode]:
        """All but the root, parents first."""
        stack = list(self.root.children.values())
        while stack:
            node = stack.pop()
            yield node
            stack += node.children.values()

    def check(self) -> None:
        """AssertionError where an invariant does not hold; for tests, since it walks the whole tree."""
        nodes = list(self.nodes())
        assert len(nodes) == self._pages.num_cached
        assert len({node.page for node in nodes}) == len(nodes)
        assert {node for node in nodes if node.tail is not None} == set(self._tailed)
        assert len(self._tailed) == self._tails.num_cached == len({node.tail for node in self._tailed})
        assert sum(node.locks == 0 for node in nodes) == self._unlocked
        offered = {(used, node) for used, _, node in self._leaves}
        for node in nodes:
            assert node.parent is not None and node.parent.children[node.key] is node
            assert node.depth == node.parent.depth + 1
            assert len(node.key) == self._page_size + self._lookahead
            assert node.locks >= sum(child.locks for child in node.children.values())
            newest = max((child.last_used for child in node.children.values()), default=0)
            assert node.locks or node.last_used >= newest
            if self._is_free_leaf(node):
                assert node.tail is not None, "a page that leads nowhere"
                assert (node.last_used, node) in offered

    def _child(self, node: RadixNode, tokens: Sequence[int], *, whole: bool = False) -> RadixNode | None:
        """The next node along `tokens`; unless `whole`, only if a token is left after it."""
        start = node.depth * self._page_size
        length = self._page_size + self._lookahead
        left = len(tokens) - start
        if left < length or (not whole and left <= self._page_size):
            return None
        return node.children.get(tuple(tokens[start : start + length]))

    def _add(self, parent: RadixNode, tokens: Sequence[int], page: int) -> RadixNode:
        start = parent.depth * self._page_size
        key = tuple(tokens[start : start + self._page_size + self._lookahead])
        assert len(key) == self._page_size + self._lookahead, "a page's tokens are not all known"
        self._pages.give_to_cache(page)
        node = RadixNode(key=key, page=page, depth=parent.depth + 1, parent=parent)
        parent.children[key] = node
        self._unlocked += 1
        return node

    def _touch(self, node: RadixNode, now: int) -> None:
        node.last_used = now
        self._offer(node)

    def _use_tail(self, node: RadixNode) -> None:
        self._tailed.pop(node, None)
        self._tailed[node] = None

    def _drop_tail(self, node: RadixNode) -> None:
        if node.tail is not None:
            self._tails.free_cached(node.tail)
            node.tail = None
            del self._tailed[node]

    def _is_free_leaf(self, node: RadixNode) -> bool:
        return node.locks == 0 and not node.children and node.parent is not None

    def _offer(self, node: RadixNode) -> None:
        """Let a node that has become an unlocked leaf, or was used as one, be found by `evict_pages`."""
        if not self._is_free_leaf(node):
            return
        heapq.heappush(self._leaves, (node.last_used, next(self._order), node))
        if len(self._leaves) > 64 + 4 * self._pages.num_cached:
            fresh = {(node.last_used, node): number for used, number, node in self._leaves if used == node.last_used}
            self._leaves = [(used, number, node) for (used, node), number in fresh.items() if self._is_free_leaf(node)]
            heapq.heapify(self._leaves)

    def _prune(self, node: RadixNode) -> None:
        """Remove a node that leads nowhere and is no end of a hit, and what leads to it alone."""
        if self._is_free_leaf(node) and node.tail is None:
            self._remove_up(node)

    def _remove_up(self, leaf: RadixNode) -> int:
        """Remove an unlocked leaf and then every parent that is left without purpose; returns the pages freed."""
        freed = 0
        while True:
            parent = leaf.parent
            assert parent is not None
            del parent.children[leaf.key]
            leaf.parent = None
            self._drop_tail(leaf)
            self._pages.free_cached(leaf.page)
            self._unlocked -= 1
            freed += 1
            if not self._is_free_leaf(parent):
                return freed
            if parent.tail is not None:
                self._offer(parent)
                return freed
            leaf = parent
