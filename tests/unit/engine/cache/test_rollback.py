"""After every verify, all that a later step may read equals what a request without drafts has."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from dsv4_engine.cache.layout import carried_state
from dsv4_engine.phase import Phase
from engine_batches import golden_runner, make_batch, poison, random_ids, worst

DRAFTED, PLAIN = 1, 2


def readable(runner, slot: int, length: int) -> list[torch.Tensor]:
    """Rows of every pool that a query at `length` or later can read of positions below it, oldest first."""
    layout = runner.layout
    window = torch.arange(max(0, length - layout.window + 1), length)
    parts = []
    for pool, ratio in zip(runner.layer_pools, (*runner._ratios, 0), strict=True):
        parts.append(pool.unified[slot * layout.window_ring + window % layout.window_ring])
        for compressor in filter(None, (pool.attention, pool.indexer)):
            entry, per_page = torch.arange(length // ratio), layout.rows_per_page(ratio)
            parts.append(compressor.keys[runner.table.pages[slot][entry // per_page] * per_page + entry % per_page])
            state = torch.arange(max(0, length // ratio * ratio - carried_state(ratio)), length)
            parts.append(compressor.state[slot * layout.state_ring[ratio] + state % layout.state_ring[ratio]])
    return parts


def advance(runner, slot: int, start: int, ids: torch.Tensor, next_ids: torch.Tensor, phase: Phase) -> torch.Tensor:
    """One step through target and MTP layer, which is fed the true streams; logits."""
    batch = make_batch((slot, start, ids), phase=phase)
    output = runner.forward_target(batch)
    mtp_phase = Phase.DRAFT_EXTEND if phase is Phase.TARGET_VERIFY else Phase.DRAFT
    runner.forward_mtp(replace(batch, input_ids=next_ids, phase=mtp_phase), output.streams)
    return output.logits


@pytest.mark.parametrize(("rows", "start"), [(2, 125), (4, 122), (4, 250), (8, 119), (8, 249), (8, 27)])
def test_nothing_of_a_rejected_draft_can_be_read(rows, start):
    runner, ids = golden_runner(num_draft_tokens=rows), random_ids(300, seed=start)
    poison(runner)
    for slot in (DRAFTED, PLAIN):
        advance(runner, slot, 0, ids[:start], ids[1 : start + 1], Phase.PREFILL)
    length, generator = start, torch.Generator().manual_seed(rows)
    for _ in range(7):
        accepted = int(torch.randint(1, rows + 1, (1,), generator=generator))
        kept = torch.arange(rows) < accepted
        drafts = torch.where(kept, ids[length : length + rows], (ids[length : length + rows] + 11) % 320)
        # A draft chain first, which leaves approximate keys of its own in the MTP layer's ring.
        for offset in range(rows - 1):
            garbage = torch.full((1, 4, 128), 0.3 + offset)
            runner.forward_mtp(make_batch((DRAFTED, length + offset, ids[:1]), phase=Phase.DRAFT), garbage)
        next_ids = torch.where(kept, ids[length + 1 : length + rows + 1], 5)
        verified = advance(runner, DRAFTED, length, drafts, next_ids, Phase.TARGET_VERIFY)
        plain = [
            advance(
                runner, PLAIN, position, ids[position : position + 1], ids[position + 1 : position + 2], Phase.DECODE
            )
            for position in range(length, length + accepted)
        ]
        assert worst(verified[:accepted], torch.cat(plain)) < 2e-5
        length += accepted
        for drafted, expected in zip(*(readable(runner, slot, length) for slot in (DRAFTED, PLAIN)), strict=True):
            assert drafted.numel() == 0 or worst(drafted, expected) < 2e-5
