"""Page accounting: every page is in one state, and a wrong step is an error at once."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsv4_engine.cache.pages import PageAllocator, PageState


def test_page_zero_is_never_handed_out():
    pages = PageAllocator(5)
    assert sorted(pages.allocate(5)) == [1, 2, 3, 4, 5]
    assert (pages.count, pages.num_free, pages.num_owned, pages.num_cached) == (5, 0, 5, 0)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda p: p.free([1]), "page 1 is free, not owned"),
        (lambda p: p.free_cached(1), "page 1 is free, not cached"),
        (lambda p: p.give_to_cache(1), "page 1 is free, not owned"),
        (lambda p: p.free([0]), "page 0 does not exist"),
        (lambda p: p.free([4]), "page 4 does not exist"),
        (lambda p: p.allocate(4), "4 pages are asked for, and 3 are free"),
    ],
)
def test_what_no_page_may_do_is_an_error(wrong, said):
    pages = PageAllocator(3)
    pages.free(pages.allocate(3))
    with pytest.raises(RuntimeError, match=said):
        wrong(pages)


def test_a_cached_page_is_not_a_requests_to_free():
    tails = PageAllocator(2, noun="tail")
    [tail] = tails.allocate(1)
    tails.give_to_cache(tail)
    with pytest.raises(RuntimeError, match=f"tail {tail} is cached, not owned"):
        tails.free([tail])
    tails.free_cached(tail)
    assert tails.num_free == 2


@given(st.lists(st.tuples(st.sampled_from("acfd"), st.integers(0, 7)), max_size=60))
@settings(max_examples=30, deadline=None, derandomize=True)
def test_counts_are_those_of_a_dict(moves):
    pages, model = PageAllocator(6), dict.fromkeys(range(1, 7), "free")

    def in_state(state):
        return [page for page, now in model.items() if now == state]

    for move, number in moves:
        owned, cached = in_state("owned"), in_state("cached")
        if move == "a" and number <= pages.num_free:
            got = pages.allocate(number)
            assert all(model[page] == "free" for page in got) and len(set(got)) == number
            model |= dict.fromkeys(got, "owned")
        elif move == "c" and owned:
            page = owned[number % len(owned)]
            pages.give_to_cache(page)
            model[page] = "cached"
        elif move == "f" and owned:
            page = owned[number % len(owned)]
            pages.free([page])
            model[page] = "free"
        elif move == "d" and cached:
            page = cached[number % len(cached)]
            pages.free_cached(page)
            model[page] = "free"
        counts = (pages.num_free, pages.num_owned, pages.num_cached)
        assert counts == tuple(len(in_state(state)) for state in ("free", "owned", "cached"))
        assert all(pages.state(page) is PageState(now) for page, now in model.items())
