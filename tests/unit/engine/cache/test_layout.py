"""Sizes and addresses of the pools."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from dsv4_engine.cache.layout import CacheLayout, CacheShape, compressor_span
from dsv4_engine.cache.pools import allocate_layer, allocate_layers
from dsv4_engine.checkpoint.configs import tiny_config
from dsv4_engine.errors import EngineError
from engine_batches import CPU


def plan(**shape: int) -> CacheLayout:
    return CacheLayout.plan(tiny_config(), CacheShape(**{"max_requests": 3, "context_len": 256} | shape))


def test_rings_have_room_for_a_rejected_draft():
    layout = plan(num_draft_tokens=4)
    assert layout.window_ring == layout.window + 3
    assert layout.state_ring == {4: 16, 128: 256}


@pytest.mark.parametrize(
    ("sliding_window", "window", "ring"),
    [(1_000_000, 260, 260), (261, 260, 260), (259, 259, 260), (258, 258, 260), (257, 257, 260), (256, 256, 259)],
)
def test_a_window_costs_no_more_rows_than_the_context_has_positions(sliding_window, window, ring):
    config = replace(tiny_config(), sliding_window=sliding_window)
    layout = CacheLayout.plan(config, CacheShape(max_requests=3, context_len=256, num_draft_tokens=4))
    assert (layout.max_positions, layout.window, layout.window_ring) == (260, window, ring)


def test_without_drafts_rings_are_as_small_as_the_spans():
    layout = plan(num_draft_tokens=1)
    assert layout.window_ring == layout.window
    assert layout.state_ring == {ratio: compressor_span(ratio) for ratio in (4, 128)} == {4: 8, 128: 128}


def test_every_entry_of_a_full_context_and_its_drafts_has_a_row():
    for context in (124, 125, 127, 128, 129, 255, 256):
        layout = plan(context_len=context, num_draft_tokens=4)
        assert all(layout.entries[ratio] >= (context + 4) // ratio for ratio in (4, 128))


def test_trash_rows_are_the_last_of_their_pools():
    config, layout = tiny_config(), plan(num_draft_tokens=4)
    pool = allocate_layer(config, layout, 4, device=CPU, dtype=torch.bfloat16)
    assert len(pool.window) == layout.window_trash + 1
    assert pool.attention is not None and pool.indexer is not None
    for compressor, dim in ((pool.attention, config.head_dim), (pool.indexer, config.index_head_dim)):
        assert compressor.entries.shape == (layout.entry_trash(4) + 1, dim)
        assert compressor.state.shape == (layout.state_trash(4) + 1, 2, 2 * dim)
        assert compressor.state.dtype == torch.float32 and compressor.entries.dtype == torch.bfloat16


def test_pools_that_no_memory_holds_are_refused_with_their_size():
    config = tiny_config()
    one = allocate_layers(config, plan(max_requests=1), (0, 4, 128, 0), device=CPU, dtype=torch.float32)
    for requests in (10**8, 10**18):
        layout = plan(max_requests=requests)
        with pytest.raises(EngineError, match=f"{requests} requests need") as caught:
            allocate_layers(config, layout, (0, 4, 128, 0), device=CPU, dtype=torch.float32)
        assert f"need {requests * sum(pool.num_bytes for pool in one):,} bytes" in caught.value.message
        assert caught.value.hint == "lower max_requests or context_len"


def test_what_an_allocator_refuses_is_refused_in_the_same_words(monkeypatch):
    monkeypatch.setattr("dsv4_engine.cache.pools._memory_bytes", lambda device: 2**80)
    with pytest.raises(EngineError, match=r"the caches of 1000000000000 requests need .* bytes"):
        allocate_layers(tiny_config(), plan(max_requests=10**12), (0,), device=CPU, dtype=torch.float32)


def test_layers_have_only_the_pools_of_their_kind():
    config, layout = tiny_config(), plan()
    kinds = {ratio: allocate_layer(config, layout, ratio, device=CPU, dtype=torch.float32) for ratio in (0, 4, 128)}
    assert [pool.attention is not None for pool in kinds.values()] == [False, True, True]
    assert [pool.indexer is not None for pool in kinds.values()] == [False, True, False]
