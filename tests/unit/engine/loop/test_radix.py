"""The prefix tree against a dict of prefixes: what is found, kept, locked and evicted."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from dsv4_engine.cache.pages import PageAllocator
from dsv4_engine.cache.radix import RadixCache, RadixNode

PAGE = 2


class Tree:
    """A tree with allocators, and a short way to insert."""

    def __init__(self, *, pages=20, tails=8, lookahead=1):
        self.pages, self.tails = PageAllocator(pages), PageAllocator(tails, noun="tail")
        self.cache = RadixCache(self.pages, self.tails, page_size=PAGE, lookahead=lookahead)

    def insert(self, tokens, *, count=None, start=None) -> RadixNode:
        """The first `count` pages of `tokens`, by default all whole ones, with a tail; not locked."""
        start = start or self.cache.root
        count = (len(tokens) - 1) // PAGE if count is None else count
        pages = self.pages.allocate(count - start.depth)
        [tail] = self.tails.allocate(1)
        node = self.cache.insert(start, tokens, pages, tail)
        self.pages.free(page for page in pages if page not in {part.page for part in node.path()})
        return node


def pages_of(node: RadixNode) -> list[int]:
    return [part.page for part in node.path()]


def test_a_hit_ends_at_the_deepest_tail_and_leaves_a_token():
    tree = Tree()
    node = tree.insert([1, 2, 3, 4, 5])
    assert tree.cache.match([1, 2, 3, 4, 5, 6]) is node and node.depth == 2
    assert tree.cache.match([1, 2, 3, 4, 5]) is node
    assert tree.cache.match([1, 2, 3, 4]) is tree.cache.root, "the token after the second page is not known"
    assert tree.cache.match([1, 2, 3]) is tree.cache.root, "the first page is a path, and has no tail"


def test_without_lookahead_a_prompt_of_whole_pages_is_not_covered_whole():
    tree = Tree(lookahead=0)
    deep = tree.insert([1, 2, 3, 4], count=2)
    short = tree.insert([1, 2], count=1)
    assert tree.cache.match([1, 2, 3, 4]) is short
    assert tree.cache.match([1, 2, 3, 4, 9]) is deep


def test_pages_that_differ_in_the_token_after_them_are_two():
    tree = Tree()
    left, right = tree.insert([1, 2, 3]), tree.insert([1, 2, 4])
    assert pages_of(left) != pages_of(right)
    assert tree.cache.match([1, 2, 3, 0]) is left and tree.cache.match([1, 2, 4, 0]) is right


def test_what_the_tree_has_already_stays_the_inserters():
    tree = Tree()
    first = tree.insert([1, 2, 3, 4, 5])
    free = tree.pages.num_free, tree.tails.num_free
    assert tree.insert([1, 2, 3, 4, 5]) is first
    assert (tree.pages.num_free, tree.tails.num_free) == free


def test_a_path_gets_its_tail_later():
    tree = Tree()
    tree.insert([1, 2, 3, 4, 5])
    node = tree.insert([1, 2, 3])
    assert tree.pages.num_cached == 2 and tree.cache.match([1, 2, 3, 9]) is node


def test_the_least_recently_used_leaf_goes_first():
    tree = Tree()
    old, new = tree.insert([1, 2, 3]), tree.insert([4, 5, 6])
    tree.cache.match([1, 2, 3])
    assert tree.cache.evict_pages(1) == 1
    assert tree.cache.match([1, 2, 3]) is old and new.parent is None


def test_a_locked_path_is_not_evicted():
    tree = Tree()
    node = tree.insert([1, 2, 3, 4, 5])
    tree.cache.lock(node)
    assert tree.cache.num_evictable == 0 and tree.cache.evict_pages(5) == 0
    with pytest.raises(RuntimeError, match="in use"):
        tree.cache.flush()
    tree.cache.unlock(node)
    assert tree.cache.num_evictable == 2 and tree.cache.evict_pages(1) == 2, "the first page leads nowhere any more"
    with pytest.raises(RuntimeError, match="not locked"):
        tree.cache.unlock(tree.insert([7, 7, 7]))


def test_a_node_without_its_tail_is_a_path_still():
    tree = Tree()
    short, deep = tree.insert([1, 2, 3]), tree.insert([1, 2, 3, 4, 5])
    assert tree.cache.evict_tail() and short.tail is None and short.parent is not None
    assert tree.cache.match([1, 2, 3, 0]) is tree.cache.root
    assert tree.cache.match([1, 2, 3, 4, 5]) is deep
    assert tree.cache.evict_tail() and tree.pages.num_cached == 0
    assert not tree.cache.evict_tail()


def test_a_locked_node_whose_tail_went_goes_when_it_is_let_go():
    tree = Tree()
    node = tree.insert([1, 2, 3])
    tree.cache.lock(node)
    assert tree.cache.evict_tail() and tree.pages.num_cached == 1
    tree.cache.unlock(node)
    assert tree.pages.num_cached == 0
    tree.cache.check()


def test_use_does_not_pile_up():
    tree = Tree()
    node = tree.insert([1, 2, 3])
    for _ in range(1000):
        tree.cache.lock(tree.cache.match([1, 2, 3, 4]))
        tree.cache.unlock(node)
    assert len(tree.cache._leaves) < 100


Prefix = tuple[int, ...]
TOKENS = st.lists(st.integers(0, 1), min_size=0, max_size=9).map(tuple)


class AgainstADict(RuleBasedStateMachine):
    """The model: which prefixes (pages and lookahead) are there, which have a tail, and who has locked which."""

    lookahead = 1

    def __init__(self):
        super().__init__()
        self.tree = Tree(pages=12, tails=4, lookahead=self.lookahead)
        self.tails: list[Prefix] = []  # least recently used first
        self.paths: dict[Prefix, int] = {}  # prefix -> page
        self.locked: list[tuple[Prefix, RadixNode]] = []

    def prefixes(self, tokens: Prefix, *, whole: bool = False) -> list[Prefix]:
        ends = range(PAGE, len(tokens) + 1, PAGE)
        spare = 0 if whole else 1
        return [tokens[: e + self.lookahead] for e in ends if e + max(self.lookahead, spare) <= len(tokens)]

    def in_use(self, prefix: Prefix) -> bool:
        return any(held[: len(prefix)] == prefix for held, _ in self.locked)

    def forget_useless(self) -> None:
        """Drop what is no end of a hit, leads to none and is not locked."""
        for prefix in sorted(self.paths, key=len, reverse=True):
            leads = any(other != prefix and self.leads(prefix, other) for other in self.paths)
            if prefix not in self.tails and not leads and not self.in_use(prefix):
                del self.paths[prefix]

    def leads(self, prefix: Prefix, other: Prefix) -> bool:
        return other[: len(prefix)] == prefix

    @rule(tokens=TOKENS)
    def match(self, tokens):
        known = [prefix for prefix in self.prefixes(tokens) if prefix in self.paths]
        # A path is followed only as far as every page of it is there, which the dict's closure says.
        best = next((prefix for prefix in reversed(known) if prefix in self.tails), ())
        node = self.tree.cache.match(tokens)
        assert pages_of(node) == [self.paths[prefix] for prefix in known if len(prefix) <= len(best)]
        if best:
            self.tails.remove(best)
            self.tails.append(best)

    @rule(tokens=TOKENS, lock=st.booleans())
    def insert(self, tokens, lock):
        prefixes = self.prefixes(tokens, whole=True)
        if not prefixes or self.tree.pages.num_free < len(prefixes) or self.tree.tails.num_free == 0:
            return
        node = self.tree.insert(tokens, count=len(prefixes))
        for prefix, part in zip(prefixes, node.path(), strict=True):
            assert self.paths.setdefault(prefix, part.page) == part.page
        if prefixes[-1] in self.tails:
            self.tails.remove(prefixes[-1])
        self.tails.append(prefixes[-1])
        if lock:
            self.tree.cache.lock(node)
            self.locked.append((prefixes[-1], node))

    @precondition(lambda self: self.locked)
    @rule(number=st.integers(0, 20))
    def unlock(self, number):
        _, node = self.locked.pop(number % len(self.locked))
        self.tree.cache.unlock(node)
        self.forget_useless()

    @rule(tokens=TOKENS)
    def lock_a_hit(self, tokens):
        self.match(tokens)
        node = self.tree.cache.match(tokens)
        if node.depth:
            self.tree.cache.lock(node)
            self.locked.append((self.prefixes(tokens)[node.depth - 1], node))

    @rule()
    def evict_tail(self):
        assert self.tree.cache.evict_tail() is bool(self.tails)
        if self.tails:
            self.tails.pop(0)
            self.forget_useless()

    @rule(wanted=st.integers(1, 4))
    def evict_pages(self, wanted):
        evictable = {prefix for prefix in self.paths if not self.in_use(prefix)}
        freed = self.tree.cache.evict_pages(wanted)
        assert freed >= min(wanted, len(evictable))
        there = {node.page for node in self.tree.cache.nodes()}
        gone = {prefix for prefix, page in self.paths.items() if page not in there}
        assert gone <= evictable and len(gone) == freed
        assert all(other in gone for prefix in gone for other in self.paths if self.leads(prefix, other))
        self.paths = {prefix: page for prefix, page in self.paths.items() if prefix not in gone}
        self.tails = [prefix for prefix in self.tails if prefix not in gone]

    @invariant()
    def agrees(self):
        self.tree.cache.check()
        assert {node.page for node in self.tree.cache.nodes()} == set(self.paths.values())
        assert self.tree.tails.num_cached == len(self.tails)
        assert self.tree.cache.num_evictable == sum(not self.in_use(prefix) for prefix in self.paths)

    def teardown(self):
        for _, node in self.locked:
            self.tree.cache.unlock(node)
        self.tree.cache.flush()
        assert self.tree.pages.num_free == 12 and self.tree.tails.num_free == 4


class AgainstADictWithoutLookahead(AgainstADict):
    lookahead = 0


LIMITS = settings(max_examples=40, stateful_step_count=30, deadline=None, derandomize=True)
TestAgainstADict = AgainstADict.TestCase
TestAgainstADict.settings = LIMITS
TestWithoutLookahead = AgainstADictWithoutLookahead.TestCase
TestWithoutLookahead.settings = LIMITS
