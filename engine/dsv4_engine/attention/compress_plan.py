"""Which compression windows a step completes, for any chunking and any batch, without asking the device how many."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from dsv4_engine.attention.rows import RowMeta
from dsv4_engine.batch import ForwardBatch
from dsv4_engine.cache.layout import CacheLayout, compressor_span


@dataclass(frozen=True, kw_only=True)
class CompressMeta:
    """One compression ratio's reads and writes; C = T // ratio + B planned entries, S source tokens of each.

    Sources, (C, S): row `flat_index` of this step where `in_chunk`, else row `ring_index` of the state pool; `valid`
    where the position exists. entry_pos: (C,) position of an entry's first token. entry_write: (C,) its row in the
    entry pool, the trash row for plan entries that no window fills. state_phase, state_write: (T,) position mod ratio
    and row in the state pool of each token. visible: (T,) entries that each row may attend; entry_base: (T,) row of its
    request's first entry; max_entries: host bound of `visible`.
    """

    in_chunk: torch.Tensor
    flat_index: torch.Tensor
    ring_index: torch.Tensor
    valid: torch.Tensor
    entry_pos: torch.Tensor
    entry_write: torch.Tensor
    state_phase: torch.Tensor
    state_write: torch.Tensor
    visible: torch.Tensor
    entry_base: torch.Tensor
    max_entries: int


def plan_compression(batch: ForwardBatch, rows: RowMeta, ratio: int, layout: CacheLayout) -> CompressMeta:
    """Plan for the windows of `ratio` tokens that the batch completes."""
    device, ring, entries = batch.positions.device, layout.state_ring[ratio], layout.entries[ratio]
    chunk_start = batch.seq_lens - batch.extend_lens
    first_window = chunk_start // ratio
    completed = batch.seq_lens // ratio - first_window
    ends = torch.cumsum(completed, 0)

    plan = torch.arange(batch.num_tokens // ratio + batch.num_requests, device=device)
    request = torch.searchsorted(ends, plan, right=True).clamp_(max=batch.num_requests - 1)
    window = first_window[request] + plan - (ends - completed)[request]
    fills = (plan < ends[-1]) & (window < entries)

    span = compressor_span(ratio)
    source = ((window + 1) * ratio)[:, None] + torch.arange(-span, 0, device=device)
    chunk_row = torch.cumsum(batch.extend_lens, 0) - batch.extend_lens
    slot = batch.req_slots[request]
    stays = batch.positions > rows.final_pos - ring
    return CompressMeta(
        in_chunk=source >= chunk_start[request][:, None],
        flat_index=(source + (chunk_row - chunk_start)[request][:, None]).clamp_(0, batch.num_tokens - 1),
        ring_index=slot[:, None] * ring + source % ring,
        valid=source >= 0,
        entry_pos=window * ratio,
        entry_write=torch.where(fills, slot * entries + window, layout.entry_trash(ratio)),
        state_phase=batch.positions % ratio,
        state_write=torch.where(
            stays, rows.slot * ring + batch.positions % ring, layout.state_trash(ratio)
        ),
        visible=(batch.positions + 1) // ratio,
        entry_base=rows.slot * entries,
        max_entries=batch.max_seq_len // ratio,
    )
