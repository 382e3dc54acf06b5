"""Bytes of the caches: equal to what is allocated, and as many pages as a budget holds."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dsv4_engine.cache.budget import POOLS, cache_plan, fit_shape, fraction_of_memory, memory_bytes
from dsv4_engine.cache.layout import CacheLayout, CacheShape
from dsv4_engine.cache.pools import allocate_layers
from dsv4_engine.checkpoint.configs import tiny_config
from dsv4_engine.errors import EngineError
from engine_batches import CPU, golden_runner

BOUNDED = settings(max_examples=25, deadline=None, derandomize=True)
CONFIG = tiny_config()
RATIOS = (*CONFIG.compress_ratios[: CONFIG.num_hidden_layers], 0)
SHAPES = st.builds(
    CacheShape,
    max_requests=st.integers(1, 4),
    context_len=st.integers(1, 600),
    num_draft_tokens=st.integers(1, 8),
    page_size=st.sampled_from((128, 256)),
    num_pages=st.none() | st.integers(1, 9),
    num_tails=st.integers(0, 3),
)


@BOUNDED
@given(SHAPES, st.sampled_from((torch.float32, torch.bfloat16)), st.sampled_from((RATIOS, RATIOS[:-1])))
def test_the_plan_is_what_the_tensors_take(shape, dtype, ratios):
    layout = CacheLayout.plan(CONFIG, shape)
    plan = cache_plan(CONFIG, layout, ratios, dtype=dtype)
    pools = allocate_layers(CONFIG, layout, ratios, device=CPU, dtype=dtype)
    table = 4 * layout.num_slots * layout.pages_per_request
    assert plan.num_bytes == sum(pool.num_bytes for pool in pools) + table
    size = {pool.name: pool.bytes for pool in plan.pools}
    assert tuple(size) == POOLS and size["table"] == table
    assert size["mtp"] == (pools[-1].unified.nbytes if len(ratios) > CONFIG.num_hidden_layers else 0)
    main = pools[: CONFIG.num_hidden_layers]
    assert size["swa"] + size["compressed"] == sum(pool.unified.nbytes for pool in main)
    assert size["indexer"] == sum(pool.indexer.keys.nbytes for pool in main if pool.indexer)
    assert (size["tails"] == 0) == (shape.num_tails == 0)


def test_a_runner_says_what_its_caches_take():
    runner = golden_runner(num_tails=2, num_pages=20, max_requests=3)
    owned = {tensor.data_ptr(): tensor.nbytes for pool in runner.layer_pools for tensor in pool.tensors()}
    assert runner.cache_plan.num_bytes == sum(owned.values()) + runner.table.pages.nbytes
    lines = runner.cache_plan.table().splitlines()
    assert [line.split()[0] for line in lines] == [*POOLS, "total", "3"]
    assert lines[-2].split()[-2] == f"{runner.cache_plan.num_bytes:,}"
    assert lines[-1] == "3 requests, 20 pages of 256 tokens (5,120 tokens), 2 tails"


@BOUNDED
@given(SHAPES, st.integers(0, 3), st.integers(0, 10**7))
def test_one_page_more_would_not_fit(shape, pages_per_tail, spare):
    dtype = torch.float32

    def needed(pages: int) -> int:
        tails = pages // pages_per_tail if pages_per_tail else shape.num_tails
        layout = CacheLayout.plan(CONFIG, replace(shape, num_pages=pages, num_tails=tails))
        return cache_plan(CONFIG, layout, RATIOS, dtype=dtype).num_bytes

    least = shape.pages_per_request
    budget = needed(least) + spare
    fitted = fit_shape(CONFIG, shape, RATIOS, dtype=dtype, budget=budget, pages_per_tail=pages_per_tail)
    assert fitted.num_pages is not None and fitted.num_pages >= least
    assert needed(fitted.num_pages) <= budget < needed(fitted.num_pages + 1)
    assert fitted.num_tails == (fitted.num_pages // pages_per_tail if pages_per_tail else shape.num_tails)
    assert replace(fitted, num_pages=shape.num_pages, num_tails=shape.num_tails) == shape
    capped = fit_shape(
        CONFIG, shape, RATIOS, dtype=dtype, budget=budget, pages_per_tail=pages_per_tail, most_pages=least + 1
    )
    assert capped.num_pages <= least + 1
    with pytest.raises(EngineError, match=r"does not hold one request of [\d,]+ tokens") as caught:
        fit_shape(CONFIG, shape, RATIOS, dtype=dtype, budget=needed(least) - 1, pages_per_tail=pages_per_tail)
    assert f"{needed(least):,} bytes" in caught.value.message and "raise the budget" in caught.value.hint


def test_a_budget_is_used_to_its_last_byte():
    shape = CacheShape(max_requests=2, context_len=100)

    def needed(pages: int) -> int:
        layout = CacheLayout.plan(CONFIG, replace(shape, num_pages=pages))
        return cache_plan(CONFIG, layout, RATIOS, dtype=torch.float32).num_bytes

    for pages in range(1, 9):
        for budget, expected in ((needed(pages), pages), (needed(pages + 1) - 1, pages)):
            assert fit_shape(CONFIG, shape, RATIOS, dtype=torch.float32, budget=budget).num_pages == expected


def test_a_model_without_compression_needs_no_pages():
    config = replace(CONFIG, compress_ratios=(0,) * len(CONFIG.compress_ratios))
    shape = CacheShape(max_requests=2, context_len=100)
    fitted = fit_shape(config, shape, (0, 0), dtype=torch.float32, budget=10**9)
    assert fitted.num_pages == 2 * shape.pages_per_request, "and yet both requests must be scheduled"
    tailed = fit_shape(config, shape, (0, 0), dtype=torch.float32, budget=10**7, pages_per_tail=8)
    assert tailed.num_tails > 8, "what is left of the budget keeps prefixes"


def test_a_share_of_memory():
    assert fraction_of_memory(0.5, CPU) == memory_bytes(CPU) // 2
    for share in (0, -0.1, 1.5, float("nan")):
        with pytest.raises(EngineError, match="share of memory"):
            fraction_of_memory(share, CPU)
