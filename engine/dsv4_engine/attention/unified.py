"""The metadata of attention over a unified pool, where a layer's window rows and compressed rows share one tensor.

Decode and verify read streams: for each row the addresses of its window rows and then of its compressed rows, all rows'
lists end to end. A prefill reads from two sources instead, because its chunk may be longer than a ring: keys before the
chunk from the pool, keys of the chunk from the step's own rows.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import torch

from dsv4_engine.attention.core import DSV4AttnMetadata
from dsv4_engine.attention.rows import RowMeta, kept
from dsv4_engine.cache.layout import CacheLayout
from dsv4_engine.config import CSA, HCA


@dataclass(frozen=True, kw_only=True)
class Streams:
    """Addresses in a unified pool. Buffers hold the worst case, so that no length is read by the host.

    swa, hca, csa_indices: (T * width + 1,) int32, row t's list from indptr[t] to indptr[t + 1]; *_indptr: (T + 1,)
    int32. What follows the last list is 0, and the very last place takes what belongs nowhere. hca: window rows, then
    all ratio-128 rows. csa: window rows, then `csa_tail_loc`: (T, K) int32 places that every ratio-4 layer fills after
    its indexer has chosen.
    """

    swa_indices: torch.Tensor
    swa_indptr: torch.Tensor
    hca_indices: torch.Tensor | None = None
    hca_indptr: torch.Tensor | None = None
    csa_indices: torch.Tensor | None = None
    csa_indptr: torch.Tensor | None = None
    csa_tail_loc: torch.Tensor | None = None


@dataclass(frozen=True, kw_only=True)
class UnifiedKvMetadata:
    """swa_loc: (T,) int32 pool row of each token, 0 where its ring does not keep it.

    streams: of decode, draft and verify passes, else None. pf_state_slot, pf_chunk_start, pf_cu_q, pf_final_pos: (T,)
    int64 slot, first position of the request's rows, index of the first, position of the last. They are those of
    prefill and draft-extend passes; verify has them too, for its compressor state: verify_store_state_slot (T,) int64.
    c4_out_loc, c128_out_loc: (T,) int64, the core's with swa_pages added: rows of the unified pool. window: keys that
    a row attends at most; swa_pages: rows of window rings, before the compressed ones.
    """

    swa_loc: torch.Tensor
    pf_state_slot: torch.Tensor
    pf_chunk_start: torch.Tensor
    pf_cu_q: torch.Tensor
    pf_final_pos: torch.Tensor
    window: int
    swa_pages: int
    streams: Streams | None = None
    verify_store_state_slot: torch.Tensor | None = None
    c4_out_loc: torch.Tensor | None = None
    c128_out_loc: torch.Tensor | None = None


def build_unified(
    positions: torch.Tensor,
    rows: RowMeta,
    core: DSV4AttnMetadata,
    layout: CacheLayout,
    *,
    attach_decode_streams: bool,
    ratios: Collection[int],
) -> UnifiedKvMetadata:
    """Metadata over unified pools; `ratios` are those of the pass, whose streams are built where asked for."""
    ring = layout.window_ring
    swa_loc = torch.where(kept(positions, rows, ring), rows.slot * ring + positions % ring, 0)
    return UnifiedKvMetadata(
        swa_loc=swa_loc.to(torch.int32),
        pf_state_slot=rows.slot,
        pf_chunk_start=rows.chunk_start,
        pf_cu_q=rows.chunk_row,
        pf_final_pos=rows.final_pos,
        window=layout.window,
        swa_pages=layout.swa_pages,
        streams=_streams(core, layout, ratios) if attach_decode_streams else None,
        verify_store_state_slot=rows.slot if attach_decode_streams and ratios else None,
        c4_out_loc=None if core.c4_out_loc is None else core.c4_out_loc + layout.swa_pages,
        c128_out_loc=None if core.c128_out_loc is None else core.c128_out_loc + layout.swa_pages,
    )


def _streams(core: DSV4AttnMetadata, layout: CacheLayout, ratios: Collection[int]) -> Streams:
    window = _Window.of(core, layout.window)
    swa_indices, swa_indptr = window.lists(None, 0)
    parts: dict[str, torch.Tensor] = {}
    if HCA in ratios:
        assert core.c128_page_indices is not None and core.c128_topk_lengths_raw is not None
        width, tail_lens = core.max_seq_len // HCA, core.c128_topk_lengths_raw
        indices, indptr = window.lists(tail_lens, width)
        places = window.tail_places(indices, indptr, tail_lens, width)
        indices[places] = core.c128_page_indices[:, :width] + layout.swa_pages
        parts |= {"hca_indices": indices, "hca_indptr": indptr}
    if CSA in ratios:
        assert core.c4_sparse_page_indices is not None and core.c4_sparse_topk_lengths_raw is not None
        width, tail_lens = core.c4_sparse_page_indices.shape[1], core.c4_sparse_topk_lengths_raw
        indices, indptr = window.lists(tail_lens, width)
        places = window.tail_places(indices, indptr, tail_lens, width)
        parts |= {"csa_indices": indices, "csa_indptr": indptr, "csa_tail_loc": places}
    return Streams(swa_indices=swa_indices, swa_indptr=swa_indptr, **parts)


@dataclass(frozen=True, kw_only=True)
class _Window:
    """What all kinds of streams begin with: (T, window) rows and their columns, `lens` (T,) of which exist."""

    rows: torch.Tensor
    lens: torch.Tensor
    column: torch.Tensor
    exists: torch.Tensor

    @classmethod
    def of(cls, core: DSV4AttnMetadata, window: int) -> _Window:
        lens = core.swa_topk_lengths
        column = torch.arange(window, dtype=torch.int32, device=lens.device)
        rows = core.swa_page_indices[:, :window]
        return cls(rows=rows, lens=lens, column=column, exists=column < lens[:, None])

    def lists(self, tail_lens: torch.Tensor | None, tail_width: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Flat buffer and offsets of the window rows' lists, each with free places for its tail."""
        count, width = self.rows.shape
        indptr = torch.zeros(count + 1, dtype=torch.int32, device=self.lens.device)
        torch.cumsum(self.lens if tail_lens is None else self.lens + tail_lens, 0, out=indptr[1:])
        indices = torch.zeros(count * (width + tail_width) + 1, dtype=torch.int32, device=self.lens.device)
        indices[torch.where(self.exists, indptr[:-1, None] + self.column, len(indices) - 1)] = self.rows
        return indices, indptr

    def tail_places(
        self, indices: torch.Tensor, indptr: torch.Tensor, tail_lens: torch.Tensor, width: int
    ) -> torch.Tensor:
        """(T, width) places behind the window rows; the buffer's last one for what a tail does not have."""
        column = torch.arange(width, dtype=torch.int32, device=tail_lens.device)
        places = (indptr[:-1] + self.lens)[:, None] + column
        return torch.where(column < tail_lens[:, None], places, len(indices) - 1)
