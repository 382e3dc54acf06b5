"""Where the context is full: no draft window may write outside its own slot, and output ends where the room does."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from dsv4_engine.request import FinishReason
from engine_batches import poison
from serving import make_engine, random_prompts, replace_drafts, run, runner_of, serve


@pytest.mark.parametrize("context_len", [128, 130, 131, 200])
@pytest.mark.parametrize("num_drafts", [0, 1, 3, 7])
def test_prompts_that_leave_little_room(context_len, num_drafts):
    prompts = random_prompts([context_len - room for room in range(1, 6)], seed=9)
    expected = [serve([prompt], num_drafts=0, max_new_tokens=room)[0].tokens for room, prompt in enumerate(prompts, 1)]
    engine = make_engine(num_drafts=num_drafts, context_len=context_len)
    poison(runner_of(engine))
    results = run(engine, prompts, max_new_tokens=50)
    assert [result.tokens for result in results] == expected
    assert {result.finish_reason for result in results} == {FinishReason.LENGTH}


def rows_of(runner, slot: int, pages: Sequence[int]) -> list[torch.Tensor]:
    """Every cache row of a slot's rings and of some pages, in all pools."""
    rows, layout = [], runner.layout
    ratios = (*runner._ratios, 0)
    for ratio, pool in zip(ratios, runner.layer_pools, strict=True):
        rows.append(pool.unified[slot * layout.window_ring : (slot + 1) * layout.window_ring])
        for compressor in filter(None, (pool.attention, pool.indexer)):
            state, entries = layout.state_ring[ratio], layout.rows_per_page(ratio)
            rows.append(compressor.state[slot * state : (slot + 1) * state])
            rows += [compressor.keys[page * entries : (page + 1) * entries] for page in pages]
    return rows


@pytest.mark.parametrize("room", range(1, 6))
@pytest.mark.parametrize("num_drafts", [1, 3, 7])
def test_nothing_is_written_outside_the_requests_own_slot_and_pages(room, num_drafts):
    engine = make_engine(num_drafts=num_drafts, context_len=128, max_requests=2, page_size=128, num_pages=6)
    runner = runner_of(engine)
    poison(runner)
    [prompt] = random_prompts([128 - room], seed=10)
    run(engine, [prompt], max_new_tokens=50)
    # A draft window may reach beyond position 127, so into a second page.
    assert not all(row.isnan().all() for row in rows_of(runner, 1, [1]))
    assert all(row.isnan().all() for row in rows_of(runner, 2, range(3, 7)))


def test_perfect_drafts_end_where_the_context_ends():
    [prompt] = random_prompts([125], seed=11)
    future = serve([prompt], num_drafts=0, max_new_tokens=20)[0].tokens
    engine = make_engine(num_drafts=7, context_len=128)
    replace_drafts(engine, lambda request: future[len(request.output) :])
    [result] = run(engine, [prompt], max_new_tokens=50)
    assert result.tokens == future[:3] and result.accept_lens == (8,)
