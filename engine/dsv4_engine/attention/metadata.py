"""Which rows read and write where, worked out once a forward pass and shared by all layers.

The problem it solves is that rows of many requests lie flat in one batch, while their keys lie in position-addressed
pools. Everything here stays on the device: sizes come from host mirrors or are worst cases, so that the only thing that
can make the host wait is the `exact=False` form of `attach_prefill_meta`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import torch

from dsv4_engine.attention.compress_plan import CompressMeta, plan_compression
from dsv4_engine.attention.rows import RowMeta
from dsv4_engine.batch import ForwardBatch
from dsv4_engine.cache.layout import CacheLayout
from dsv4_engine.hooks import StepHooks


@dataclass(frozen=True, kw_only=True)
class WindowMeta:
    """Sliding-window keys of each row, oldest first, the row itself last; (T, window), `write_index` (T,).

    in_chunk: the key is row `flat_index` of this step, else row `ring_index` of the window pool.
    valid: the position exists. write_index: where the row goes in the pool, the trash row if it would not stay.
    """

    in_chunk: torch.Tensor
    flat_index: torch.Tensor
    ring_index: torch.Tensor
    valid: torch.Tensor
    write_index: torch.Tensor


@dataclass(frozen=True, kw_only=True)
class ForwardMeta:
    """All that attention needs to know of a batch; `compress` by compression ratio."""

    positions: torch.Tensor
    rows: RowMeta
    window: WindowMeta
    compress: Mapping[int, CompressMeta]


def attach_prefill_meta(
    req_slots: torch.Tensor, seq_lens: torch.Tensor, extend_lens: torch.Tensor, *, num_tokens: int, exact: bool
) -> RowMeta:
    """Expand (B,) int64 request values to T = num_tokens rows.

    With `exact` the expansion is told its size. Without, torch reads the sum of `extend_lens` back to the host, and the
    whole build waits for the device: the form that sglang #29202 found in draft-extend. `num_tokens` must be the exact
    sum; a wrong size is an error on CPU and a device assert or abort on GPUs.
    """
    requests = torch.arange(len(req_slots), device=extend_lens.device)
    if exact:
        request = torch.repeat_interleave(requests, extend_lens, output_size=num_tokens)
    else:
        # dsv4prof: allow[DSV105] the read of sglang #29202, kept to be found; --exact-num-tokens is the fix
        request = torch.repeat_interleave(requests, extend_lens)
    return RowMeta(
        request=request,
        slot=req_slots[request],
        chunk_start=(seq_lens - extend_lens)[request],
        chunk_row=(torch.cumsum(extend_lens, 0) - extend_lens)[request],
        final_pos=(seq_lens - 1)[request],
    )


def single_row_meta(req_slots: torch.Tensor, seq_lens: torch.Tensor) -> RowMeta:
    """The same where every request has one row: nothing to expand, so nothing to size."""
    rows = torch.arange(len(req_slots), device=req_slots.device)
    return RowMeta(request=rows, slot=req_slots, chunk_start=seq_lens - 1, chunk_row=rows, final_pos=seq_lens - 1)


def window_meta(rows: RowMeta, positions: torch.Tensor, layout: CacheLayout) -> WindowMeta:
    """Window reads of rows at `positions` (T,), and where the rows themselves are stored."""
    window, ring = layout.window, layout.window_ring
    key_pos = positions[:, None] + torch.arange(1 - window, 1, device=positions.device)
    slot_base = rows.slot * ring
    return WindowMeta(
        in_chunk=key_pos >= rows.chunk_start[:, None],
        flat_index=(key_pos + (rows.chunk_row - rows.chunk_start)[:, None]).clamp_(0, len(positions) - 1),
        ring_index=slot_base[:, None] + key_pos % ring,
        valid=key_pos >= 0,
        write_index=torch.where(
            positions > rows.final_pos - ring, slot_base + positions % ring, layout.window_trash
        ),
    )


def build_metadata(
    batch: ForwardBatch, layout: CacheLayout, *, ratios: Collection[int], exact: bool, hooks: StepHooks
) -> ForwardMeta:
    """Metadata of one forward pass through layers of the given compression `ratios`.

    `exact` picks the form of `attach_prefill_meta`; the result is the same.
    """
    assert batch.num_tokens == len(batch.input_ids) == sum(batch.extend_lens_host), "num_tokens must be exact"
    assert min(batch.extend_lens_host) >= 1, "a request without rows"
    assert batch.max_seq_len <= layout.max_positions, "a request outgrew its cache slot"
    with hooks.span("build_metadata"):
        if batch.num_tokens == batch.num_requests:
            rows = single_row_meta(batch.req_slots, batch.seq_lens)
        else:
            with hooks.span("attach_prefill_meta"):
                rows = attach_prefill_meta(
                    batch.req_slots, batch.seq_lens, batch.extend_lens, num_tokens=batch.num_tokens, exact=exact
                )
        return ForwardMeta(
            positions=batch.positions,
            rows=rows,
            window=window_meta(rows, batch.positions, layout),
            compress={ratio: plan_compression(batch, rows, ratio, layout) for ratio in ratios},
        )
