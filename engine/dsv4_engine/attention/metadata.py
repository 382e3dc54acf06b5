"""Which rows read and write where, worked out once a forward pass and shared by all layers.

The problem it solves is that rows of many requests lie flat in one batch, while their keys lie in position-addressed
pools. Everything here stays on the device: sizes come from host mirrors or are bounds, so that the only thing that can
make the host wait is the `exact=False` form of `attach_prefill_meta`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch.nn import functional as F

from dsv4_engine.attention.compress_plan import CompressPlan, CompressPlanner
from dsv4_engine.attention.core import DSV4AttnMetadata, IndexerMetadata, build_core, build_indexer
from dsv4_engine.attention.rows import RowMeta
from dsv4_engine.attention.unified import UnifiedKvMetadata, build_unified
from dsv4_engine.batch import ForwardBatch
from dsv4_engine.cache.layout import CacheLayout
from dsv4_engine.cache.request_table import RequestTable
from dsv4_engine.cache.staging import NO_FAULTS, Faults, StagingRing
from dsv4_engine.cache.tails import TailSaves
from dsv4_engine.errors import EngineError
from dsv4_engine.hooks import StepHooks
from dsv4_engine.phase import Phase

_FAULTY_PADDING = 64


@dataclass(frozen=True, kw_only=True)
class DSV4Metadata:
    """All that attention needs to know of a batch, as nested tensors (see `attention.tree`).

    positions: (T,) int64. compress: plans by compression ratio; empty, like `indexer`, where nothing is compressed.
    tail_saves: prefixes to keep, None where there are none.
    """

    positions: torch.Tensor
    core: DSV4AttnMetadata
    unified: UnifiedKvMetadata
    indexer: IndexerMetadata | None
    compress: Mapping[int, CompressPlan]
    tail_saves: TailSaves | None = None


@dataclass(frozen=True, kw_only=True)
class MetadataContext:
    """What stays the same from batch to batch. exact: form of `attach_prefill_meta`."""

    layout: CacheLayout
    table: RequestTable
    planner: CompressPlanner
    staging: StagingRing
    index_topk: int
    exact: bool
    hooks: StepHooks
    faults: Faults = NO_FAULTS


def attach_prefill_meta(
    req_slots: torch.Tensor, seq_lens: torch.Tensor, extend_lens: torch.Tensor, *, num_tokens: int, exact: bool
) -> RowMeta:
    """Expand (B,) int64 request values to T = num_tokens rows.

    With `exact` the expansion is told its size. Without, torch reads the sum of `extend_lens` back to the host, and the
    whole build waits for the device: the form that sglang #29202 found in draft-extend. `num_tokens` must be the exact
    sum; a wrong size is an EngineError on a CPU and a device assert or abort on GPUs.
    """
    requests = torch.arange(len(req_slots), device=extend_lens.device)
    if exact:
        request = _expanded(requests, extend_lens, output_size=num_tokens)
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


def _expanded(requests: torch.Tensor, extend_lens: torch.Tensor, *, output_size: int) -> torch.Tensor:
    try:
        return torch.repeat_interleave(requests, extend_lens, output_size=output_size)
    except RuntimeError as error:
        raise EngineError(
            f"the row expansion was told {output_size} rows, which is not the sum of extend_lens",
            hint="num_tokens must be the exact number of rows; padding comes after the expansion",
        ) from error


def single_row_meta(req_slots: torch.Tensor, seq_lens: torch.Tensor) -> RowMeta:
    """The same where every request has one row: nothing to expand, so nothing to size."""
    rows = torch.arange(len(req_slots), device=req_slots.device)
    return RowMeta(request=rows, slot=req_slots, chunk_start=seq_lens - 1, chunk_row=rows, final_pos=seq_lens - 1)


def padded(rows: RowMeta, num_rows: int, layout: CacheLayout) -> RowMeta:
    """`rows` with padded ones appended, up to `num_rows`; their positions must be 0, and nothing of them is kept.

    SGLang gives them `window` for a final position; here it is the longest ring, as drafts lengthen rings.
    """
    more = (0, num_rows - len(rows.slot))
    return RowMeta(
        request=F.pad(rows.request, more),
        slot=F.pad(rows.slot, more),
        chunk_start=F.pad(rows.chunk_start, more),
        chunk_row=F.pad(rows.chunk_row, more),
        final_pos=F.pad(rows.final_pos, more, value=layout.longest_ring),
    )


def build_metadata(batch: ForwardBatch, context: MetadataContext, *, compress: bool) -> DSV4Metadata:
    """Metadata of one forward pass. compress: whether it goes through layers that compress, as the MTP layer does not.

    Rows of `batch` beyond its num_tokens are padding. A mixed step is a prefill.
    """
    layout = context.layout
    assert batch.num_tokens == sum(batch.extend_lens_host), "num_tokens must be exact"
    assert batch.num_tokens <= len(batch.input_ids) == len(batch.positions), "rows are missing"
    assert min(batch.extend_lens_host) >= 1, "a request without rows"
    assert batch.max_seq_len <= layout.max_positions, "a request outgrew its cache slot"
    with context.hooks.span("build_metadata"):
        if batch.phase is Phase.PREFILL:
            return init_forward_metadata_prefill(batch, context, compress=compress)
        if batch.phase is Phase.TARGET_VERIFY:
            return init_forward_metadata_target_verify(batch, context, compress=compress)
        if batch.phase is Phase.DRAFT_EXTEND:
            return init_forward_metadata_draft_extend(batch, context)
        return init_forward_metadata_decode(batch, context, compress=compress and batch.phase is not Phase.DRAFT)


def init_forward_metadata_prefill(batch: ForwardBatch, context: MetadataContext, *, compress: bool) -> DSV4Metadata:
    """Chunks of prompts, with the windows of running requests between them in a mixed step: read from two sources."""
    return _build(batch, context, compress=compress, attach_decode_streams=False)


def init_forward_metadata_decode(batch: ForwardBatch, context: MetadataContext, *, compress: bool) -> DSV4Metadata:
    """One row a request, of the main model or of a draft chain: stored first, then read as a stream."""
    return _build(batch, context, compress=compress, attach_decode_streams=True)


def init_forward_metadata_target_verify(
    batch: ForwardBatch, context: MetadataContext, *, compress: bool
) -> DSV4Metadata:
    """n rows a request, attended like decode: the ring's n - 1 spare rows keep what the oldest row still needs."""
    return _build(batch, context, compress=compress, attach_decode_streams=True)


def init_forward_metadata_draft_extend(batch: ForwardBatch, context: MetadataContext) -> DSV4Metadata:
    """The same rows through the MTP layer, which compresses nothing, in the form of a prefill."""
    return _build(batch, context, compress=False, attach_decode_streams=False)


def _build(
    batch: ForwardBatch, context: MetadataContext, *, compress: bool, attach_decode_streams: bool
) -> DSV4Metadata:
    layout = context.layout
    ratios = layout.ratios if compress else ()
    rows = _rows(batch, context)
    core = build_core(batch, rows, context.table.pages, layout, ratios=ratios, index_topk=context.index_topk)
    unified = build_unified(
        batch.positions, rows, core, layout, attach_decode_streams=attach_decode_streams, ratios=ratios
    )
    return DSV4Metadata(
        positions=batch.positions,
        core=core,
        unified=unified,
        indexer=build_indexer(core, layout),
        compress=context.planner.plan(batch, rows, core, layout, ratios),
        tail_saves=_tail_saves(batch, context) if batch.tail_saves else None,
    )


def _rows(batch: ForwardBatch, context: MetadataContext) -> RowMeta:
    if batch.num_tokens == batch.num_requests:
        rows = single_row_meta(batch.req_slots, batch.seq_lens)
    else:
        num_tokens = batch.num_tokens
        if context.faults.padded_output_size:
            num_tokens = -(-(num_tokens + 1) // _FAULTY_PADDING) * _FAULTY_PADDING
        with context.hooks.span("attach_prefill_meta"):
            rows = attach_prefill_meta(
                batch.req_slots, batch.seq_lens, batch.extend_lens, num_tokens=num_tokens, exact=context.exact
            )
    if len(batch.input_ids) > batch.num_tokens:
        return padded(rows, len(batch.input_ids), context.layout)
    return rows


def _tail_saves(batch: ForwardBatch, context: MetadataContext) -> TailSaves:
    saves, layout = batch.tail_saves, context.layout
    values = ([save.slot for save in saves], [save.boundary for save in saves], [save.tail for save in saves])
    slot, boundary, tail = context.staging.upload(values).tensor()
    # The request of each save, found by its slot, as the batch's slots are on the device alone.
    request = (batch.req_slots == slot[:, None]).to(torch.uint8).argmax(1)
    end, count = batch.seq_lens[request], batch.extend_lens[request]
    reached = (end - count < boundary) & (boundary <= end)
    return TailSaves(
        boundary=boundary,
        tail=tail * reached,
        slot=slot,
        chunk_start=end - count,
        chunk_row=(torch.cumsum(batch.extend_lens, 0) - batch.extend_lens)[request],
        window=layout.window,
        window_ring=layout.window_ring,
        state_ring=layout.state_ring,
    )
