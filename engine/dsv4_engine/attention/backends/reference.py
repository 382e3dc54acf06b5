"""Attention over gathered keys in plain torch: the definition that every faster backend is compared with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.nn import functional as F

from dsv4_engine.attention.blocks import row_blocks
from dsv4_engine.attention.core import DSV4AttnMetadata
from dsv4_engine.attention.metadata import DSV4Metadata
from dsv4_engine.attention.unified import Streams
from dsv4_engine.config import HCA, SLIDING

Gathered = tuple[torch.Tensor, torch.Tensor]
"""Keys (rows, width, d), and which of them count (rows, width)."""


@dataclass(frozen=True, kw_only=True)
class ReferencePlan:
    """store: (T,) int64 pool row of each token. Of a prefill, (T, window): `from_chunk` where a key is a row of this
    step, `chunk_row`, else pool row `ring_row`; `valid` where there is one. Of streams: by ratio, (T, width) places in
    the flat list, and which of them count."""

    store: torch.Tensor
    from_chunk: torch.Tensor | None = None
    chunk_row: torch.Tensor | None = None
    ring_row: torch.Tensor | None = None
    valid: torch.Tensor | None = None
    stream_place: dict[int, torch.Tensor] | None = None
    stream_valid: dict[int, torch.Tensor] | None = None


class ReferenceBackend:
    """Gathers each row's keys and multiplies. Nothing invalid is ever multiplied, so stale pool rows cannot leak, not
    even as NaN."""

    name = "reference"

    def plan(self, meta: DSV4Metadata) -> ReferencePlan:
        store = meta.unified.swa_loc.to(torch.int64)
        if meta.unified.streams is not None:
            lists = {ratio: _list_of(meta.unified.streams, ratio) for ratio in (SLIDING, *meta.compress)}
            places = {ratio: _places(indices, indptr, len(store)) for ratio, (indices, indptr) in lists.items()}
            return ReferencePlan(
                store=store,
                stream_place={ratio: place for ratio, (place, _) in places.items()},
                stream_valid={ratio: valid for ratio, (_, valid) in places.items()},
            )
        window = meta.unified.window
        back = torch.arange(window, device=store.device)
        rows = torch.arange(len(store), device=store.device)[:, None]
        in_chunk = meta.positions - meta.unified.pf_chunk_start
        return ReferencePlan(
            store=store,
            from_chunk=back <= in_chunk[:, None],
            chunk_row=(rows - back).clamp_(min=0),
            ring_row=meta.core.swa_page_indices[:, :window].clamp(min=0).to(torch.int64),
            valid=back < meta.core.swa_topk_lengths[:, None],
        )

    def store(self, unified: torch.Tensor, kv: torch.Tensor, meta: DSV4Metadata, plan: object) -> None:
        assert isinstance(plan, ReferencePlan)
        unified[plan.store] = kv

    def attend(
        self,
        query: torch.Tensor,
        kv: torch.Tensor,
        unified: torch.Tensor,
        meta: DSV4Metadata,
        plan: object,
        *,
        ratio: int,
        sink: torch.Tensor,
        scale: float,
    ) -> torch.Tensor:
        assert isinstance(plan, ReferencePlan)
        if meta.unified.streams is not None:
            gather, width = _stream_keys(unified, meta, plan, ratio)
        else:
            gather, width = _two_source_keys(kv, unified, meta, plan, ratio)
        blocks = row_blocks(len(query), width * query.shape[2])
        outputs = [_softmax_of(query[block], *gather(block), sink, scale) for block in blocks]
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs)


def _softmax_of(
    query: torch.Tensor, keys: torch.Tensor, valid: torch.Tensor, sink: torch.Tensor, scale: float
) -> torch.Tensor:
    keys = keys.float().masked_fill_(~valid[..., None], 0)
    scores = torch.bmm(query.float(), keys.transpose(1, 2)).mul_(scale)
    scores.masked_fill_(~valid[:, None], float("-inf"))
    sinks = sink[:, None].expand(len(scores), -1, -1)
    weights = torch.softmax(torch.cat((scores, sinks), 2), 2)[..., :-1]
    return torch.bmm(weights, keys)


def _list_of(streams: Streams, ratio: int) -> Gathered:
    """Flat list and offsets of a kind of layer."""
    if ratio == SLIDING:
        return streams.swa_indices, streams.swa_indptr
    indices = streams.hca_indices if ratio == HCA else streams.csa_indices
    indptr = streams.hca_indptr if ratio == HCA else streams.csa_indptr
    assert indices is not None and indptr is not None
    return indices, indptr


def _places(indices: torch.Tensor, indptr: torch.Tensor, num_rows: int) -> Gathered:
    """Places (T, width) of each row's list, where width is the longest that a list can be, and which belong to it."""
    column = torch.arange((len(indices) - 1) // num_rows, device=indices.device)
    place = indptr[:-1, None] + column
    return place, place < indptr[1:, None]


def _stream_keys(
    unified: torch.Tensor, meta: DSV4Metadata, plan: ReferencePlan, ratio: int
) -> tuple[Callable[[slice], Gathered], int]:
    assert meta.unified.streams is not None and plan.stream_place is not None and plan.stream_valid is not None
    indices, _ = _list_of(meta.unified.streams, ratio)
    place, valid = plan.stream_place[ratio], plan.stream_valid[ratio]

    def gather(block: slice) -> Gathered:
        return F.embedding(indices[place[block]], unified), valid[block]

    return gather, place.shape[1]


def _two_source_keys(
    kv: torch.Tensor, unified: torch.Tensor, meta: DSV4Metadata, plan: ReferencePlan, ratio: int
) -> tuple[Callable[[slice], Gathered], int]:
    """Window keys from this step's rows or the ring, and compressed keys from the pool's pages."""
    from_chunk, chunk_row, ring_row, valid = plan.from_chunk, plan.chunk_row, plan.ring_row, plan.valid
    assert from_chunk is not None and chunk_row is not None and ring_row is not None and valid is not None
    entries = _entry_rows(meta.core, ratio)
    swa_pages = meta.unified.swa_pages

    def gather(block: slice) -> Gathered:
        keys = torch.where(from_chunk[block, :, None], kv[chunk_row[block]], unified[ring_row[block]])
        if not entries.shape[1]:
            return keys, valid[block]
        rows = entries[block]
        entry_keys = unified[rows.clamp(min=0) + swa_pages]
        return torch.cat((keys, entry_keys), 1), torch.cat((valid[block], rows >= 0), 1)

    return gather, valid.shape[1] + entries.shape[1]


def _entry_rows(core: DSV4AttnMetadata, ratio: int) -> torch.Tensor:
    """(T, E) compressed rows to attend, -1 for none, as few columns as the batch can need."""
    if ratio == SLIDING:
        return core.swa_page_indices[:, :0]
    if ratio == HCA:
        assert core.c128_page_indices is not None
        return core.c128_page_indices[:, : core.max_seq_len // HCA]
    assert core.c4_sparse_page_indices is not None
    return core.c4_sparse_page_indices
