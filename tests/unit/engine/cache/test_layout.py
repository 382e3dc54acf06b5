"""Sizes and addresses of the pools."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dsv4_engine.cache.layout import CacheLayout, CacheShape, carried_state, compressor_span
from dsv4_engine.cache.pools import allocate_layer, allocate_layers
from dsv4_engine.checkpoint.configs import tiny_config
from dsv4_engine.errors import EngineError
from engine_batches import CPU


def plan(**shape: int) -> CacheLayout:
    return CacheLayout.plan(tiny_config(), CacheShape(**{"max_requests": 3, "context_len": 256} | shape))


def test_rings_have_room_for_a_rejected_draft():
    layout = plan(num_draft_tokens=4)
    assert layout.window_ring == layout.window + 3
    assert layout.state_ring == {4: 16, 128: 256} and layout.longest_ring == 256


@pytest.mark.parametrize(
    ("sliding_window", "window", "ring"),
    [(1_000_000, 264, 264), (265, 264, 264), (263, 263, 264), (262, 262, 264), (261, 261, 264), (260, 260, 263)],
)
def test_a_window_costs_no_more_rows_than_the_context_has_positions(sliding_window, window, ring):
    config = replace(tiny_config(), sliding_window=sliding_window)
    layout = CacheLayout.plan(config, CacheShape(max_requests=3, context_len=256, num_draft_tokens=4))
    assert (layout.max_positions, layout.window, layout.window_ring) == (264, window, ring)


def test_without_drafts_rings_are_as_small_as_the_spans():
    layout = plan(num_draft_tokens=1)
    assert layout.window_ring == layout.window
    assert layout.state_ring == {ratio: compressor_span(ratio) for ratio in (4, 128)} == {4: 8, 128: 128}
    assert (carried_state(4), carried_state(128)) == (4, 0)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(st.integers(1, 3000), st.integers(1, 8), st.sampled_from((128, 256, 512)), st.integers(1, 9))
def test_the_table_covers_a_context_a_rejected_draft_and_an_overlapped_step(context, rows, page, requests):
    layout = plan(context_len=context, num_draft_tokens=rows, page_size=page, max_requests=requests)
    assert layout.max_positions == context + 2 * rows
    assert (layout.pages_per_request - 1) * page < layout.max_positions <= layout.pages_per_request * page
    assert (layout.num_slots, layout.num_pages) == (requests + 1, requests * layout.pages_per_request + 1)
    assert layout.num_tails == 0 and plan(num_tails=5).num_tails == 6
    for ratio in (4, 128):
        assert layout.rows_per_page(ratio) * ratio == page
        assert layout.compressed_rows(ratio) == layout.num_pages * page // ratio
    assert layout.rows_per_page(0) == layout.compressed_rows(0) == 0


@pytest.mark.parametrize("page", [1, 64, 100, 129, 130, 255, 384 + 64])
def test_a_page_that_cuts_a_window_is_refused(page):
    with pytest.raises(EngineError, match=f"page_size is {page}, and a page must hold whole") as caught:
        plan(page_size=page)
    assert caught.value.hint == "choose a multiple of 128, the default is 256"
    only_four = replace(tiny_config(), compress_ratios=(4, 4, 4, 0))
    shape = CacheShape(max_requests=1, context_len=9, page_size=page)
    if page % 4 == 0:
        assert CacheLayout.plan(only_four, shape).rows_per_page(4) == page // 4
    else:
        with pytest.raises(EngineError, match="whole compression windows"):
            CacheLayout.plan(only_four, shape)


@pytest.mark.parametrize("name", ["max_requests", "context_len", "num_draft_tokens", "page_size", "num_pages"])
def test_nothing_of_a_shape_is_zero(name):
    with pytest.raises(EngineError, match=f"{name} is 0") as caught:
        plan(**{name: 0})
    assert caught.value.hint == "choose at least 1"


def test_a_pool_holds_window_rows_and_then_pages():
    config, layout = tiny_config(), plan(num_draft_tokens=4, num_tails=2)
    pool = allocate_layer(config, layout, 4, device=CPU, dtype=torch.bfloat16)
    rows = layout.num_pages * 64
    assert pool.unified.shape == (4 * layout.window_ring + rows, config.head_dim)
    assert pool.attention is not None and pool.indexer is not None and pool.tail is not None
    pool.unified[layout.swa_pages + 70] = 3
    assert (pool.attention.keys[70] == 3).all() and pool.attention.keys.shape == (rows, config.head_dim)
    assert pool.indexer.keys.shape == (rows, config.index_head_dim)
    for compressor, dim in ((pool.attention, config.head_dim), (pool.indexer, config.index_head_dim)):
        assert compressor.state.shape == (4 * 16, 2, 2 * dim)
        assert compressor.state.dtype == torch.float32 and compressor.keys.dtype == torch.bfloat16
    assert pool.tail.window.shape == (3, layout.window, config.head_dim)
    assert pool.tail.attention_state.shape == (3, 4, 2, 2 * config.head_dim)
    assert pool.tail.indexer_state.shape == (3, 4, 2, 2 * config.index_head_dim)


def test_pools_that_no_memory_holds_are_refused_with_their_size():
    config = tiny_config()
    for requests in (10**8, 10**18):
        layout = plan(max_requests=requests)
        with pytest.raises(EngineError, match=rf"caches of {requests} requests need [\d,]+ bytes") as caught:
            allocate_layers(config, layout, (0, 4, 128, 0), device=CPU, dtype=torch.float32)
        assert caught.value.hint == "lower max_requests or context_len"


def test_what_an_allocator_refuses_is_refused_in_the_same_words(monkeypatch):
    monkeypatch.setattr("dsv4_engine.cache.pools.memory_bytes", lambda device: 2**80)
    with pytest.raises(EngineError, match=r"the caches of 1000000000000 requests need .* bytes"):
        allocate_layers(tiny_config(), plan(max_requests=10**12), (0,), device=CPU, dtype=torch.float32)


def test_layers_have_only_the_pools_of_their_kind():
    config, layout = tiny_config(), plan(num_tails=1)
    kinds = {ratio: allocate_layer(config, layout, ratio, device=CPU, dtype=torch.float32) for ratio in (0, 4, 128)}
    assert [pool.attention is not None for pool in kinds.values()] == [False, True, True]
    assert [pool.indexer is not None for pool in kinds.values()] == [False, True, False]
    assert [pool.tail.attention_state is not None for pool in kinds.values()] == [False, True, False]
