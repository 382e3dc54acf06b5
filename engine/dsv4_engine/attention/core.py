"""The metadata that any attention backend for DSV4 needs: causal lengths, pages, and addresses by row.

Names are SGLang's. Fields of a compression ratio that the model lacks, or that a pass leaves out, are None.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

import torch
from torch.nn import functional as F

from dsv4_engine.attention.rows import RowMeta
from dsv4_engine.batch import ForwardBatch
from dsv4_engine.cache.layout import CacheLayout
from dsv4_engine.config import CSA, HCA

_ALIGNMENT = 64
"""Widths of address tables are multiples of this, as kernels read them in blocks."""
_MOST_KEY_ROWS = 1 << 21
"""8 MiB of addresses."""


@dataclass(frozen=True, kw_only=True)
class DSV4AttnMetadata:
    """T query rows, P page columns, W = window padded to 64; int32 unless said otherwise, -1 for no address.

    seq_lens_casual: (T,) causal length of each row, its own position included; positions_casual: one less.
    raw_out_loc: (T,) int64, page * page_size + position % page_size; page_table: (T, P) pages of the row's request.
    Both are None where nothing is compressed, as only compressed rows lie in pages.
    swa_page_indices: (T, W) ring rows of the window, newest first. swa_topk_lengths: (T,) how many there are.
    c4_out_loc, c128_out_loc: (T,) int64, compressed row that this row's token completes, else 0, the padding page's.
    c4_topk_lengths_raw, c128_topk_lengths_raw: (T,) visible entries; _clamp1: at least 1.
    c4_sparse_topk_lengths_raw: (T,) entries that the indexer chooses, and at least 1 in c4_sparse_topk_lengths.
    c4_sparse_raw_indices, c4_sparse_page_indices: (T, K) chosen entries and their compressed rows, best first; every
    ratio-4 layer writes them anew. K = min(index_topk, entries of max_seq_len).
    c128_page_indices: (T, E padded to 64) compressed rows of all visible ratio-128 entries, oldest first.
    Compressed rows count from the first one of the padding page; `swa_pages` more in a unified pool.
    max_seq_len: host bound of every causal length.
    """

    seq_lens_casual: torch.Tensor
    positions_casual: torch.Tensor
    swa_page_indices: torch.Tensor
    swa_topk_lengths: torch.Tensor
    max_seq_len: int
    raw_out_loc: torch.Tensor | None = None
    page_table: torch.Tensor | None = None
    c4_out_loc: torch.Tensor | None = None
    c4_topk_lengths_raw: torch.Tensor | None = None
    c4_topk_lengths_clamp1: torch.Tensor | None = None
    c4_sparse_topk_lengths_raw: torch.Tensor | None = None
    c4_sparse_topk_lengths: torch.Tensor | None = None
    c4_sparse_raw_indices: torch.Tensor | None = None
    c4_sparse_page_indices: torch.Tensor | None = None
    c128_out_loc: torch.Tensor | None = None
    c128_topk_lengths_raw: torch.Tensor | None = None
    c128_topk_lengths_clamp1: torch.Tensor | None = None
    c128_page_indices: torch.Tensor | None = None


@dataclass(frozen=True, kw_only=True)
class IndexerMetadata:
    """page_table: (T, P) int32, a page holding page_size / 4 index keys. c4_seq_lens: (T,) int32 keys a row may score.

    max_c4_seq_len: host bound E of them. rows_per_page: page_size / 4. key_rows: (T, E) int64 rows of the index keys of
    all of them, or None where that is too much for one tensor, and is worked out for some rows at a time.
    """

    page_table: torch.Tensor
    c4_seq_lens: torch.Tensor
    max_c4_seq_len: int
    rows_per_page: int
    key_rows: torch.Tensor | None

    def rows_of(self, block: slice) -> torch.Tensor:
        """(rows, E) int32, the index keys of some query rows."""
        if self.key_rows is not None:
            return self.key_rows[block]
        return compressed_rows(self.page_table[block], self.max_c4_seq_len, self.rows_per_page)


def build_core(
    batch: ForwardBatch,
    rows: RowMeta,
    table: torch.Tensor,
    layout: CacheLayout,
    *,
    ratios: Collection[int],
    index_topk: int,
) -> DSV4AttnMetadata:
    """table: (num_slots, pages_per_request) int32 pages of each slot. ratios: those that this pass computes."""
    positions = batch.positions
    positions_casual = positions.to(torch.int32)
    lens = positions_casual + 1
    core: dict[str, torch.Tensor] = {
        "seq_lens_casual": lens,
        "positions_casual": positions_casual,
        "swa_page_indices": _window_rows(positions_casual, rows.slot, layout),
        "swa_topk_lengths": lens.clamp(max=layout.window),
    }
    if ratios:
        page_table = table[rows.slot, : -(-batch.max_seq_len // layout.page_size)]
        raw_out_loc = _token_places(positions, page_table, layout.page_size)
        core |= {"page_table": page_table, "raw_out_loc": raw_out_loc}
    if CSA in ratios:
        core |= _c4_fields(positions, lens, raw_out_loc, choices=min(index_topk, batch.max_seq_len // CSA))
    if HCA in ratios:
        core |= _c128_fields(positions, lens, raw_out_loc, page_table, layout, entries=batch.max_seq_len // HCA)
    return DSV4AttnMetadata(max_seq_len=batch.max_seq_len, **core)


def compressed_rows(page_table: torch.Tensor, count: int, per_page: int) -> torch.Tensor:
    """Rows (T, count) int32 of a request's first entries, through its pages (T, P) of `per_page` rows each.

    count is at most P * per_page. What lies in pages that the request does not have is for nobody to read.
    """
    inside = torch.arange(per_page, dtype=torch.int32, device=page_table.device)
    return (page_table[..., None] * per_page + inside).flatten(1)[:, :count]


def build_indexer(core: DSV4AttnMetadata, layout: CacheLayout) -> IndexerMetadata | None:
    """None where no ratio-4 layer is computed."""
    if core.c4_topk_lengths_raw is None:
        return None
    assert core.page_table is not None
    indexer = IndexerMetadata(
        page_table=core.page_table,
        c4_seq_lens=core.c4_topk_lengths_raw,
        max_c4_seq_len=core.max_seq_len // CSA,
        rows_per_page=layout.rows_per_page(CSA),
        key_rows=None,
    )
    if len(core.page_table) * indexer.max_c4_seq_len > _MOST_KEY_ROWS:
        return indexer
    return replace(indexer, key_rows=indexer.rows_of(slice(None)))


def _token_places(positions: torch.Tensor, page_table: torch.Tensor, page_size: int) -> torch.Tensor:
    page = page_table.gather(1, (positions // page_size)[:, None])[:, 0]
    return page.to(torch.int64) * page_size + positions % page_size


def _window_rows(positions: torch.Tensor, slot: torch.Tensor, layout: CacheLayout) -> torch.Tensor:
    """positions: (T,) int32."""
    back = torch.arange(layout.window, dtype=torch.int32, device=positions.device)
    key = positions[:, None] - back
    row = (slot * layout.window_ring).to(torch.int32)[:, None] + key % layout.window_ring
    rows = torch.where(key >= 0, row, -1)
    return F.pad(rows, (0, _aligned(layout.window) - layout.window), value=-1)


def _c4_fields(
    positions: torch.Tensor, lens: torch.Tensor, raw_out_loc: torch.Tensor, *, choices: int
) -> dict[str, torch.Tensor]:
    visible = lens // CSA
    chosen = visible.clamp(max=choices)
    return {
        "c4_out_loc": _completed(positions, raw_out_loc, CSA),
        "c4_topk_lengths_raw": visible,
        "c4_topk_lengths_clamp1": visible.clamp(min=1),
        "c4_sparse_topk_lengths_raw": chosen,
        "c4_sparse_topk_lengths": chosen.clamp(min=1),
        "c4_sparse_raw_indices": lens.new_full((len(lens), choices), -1),
        "c4_sparse_page_indices": lens.new_full((len(lens), choices), -1),
    }


def _c128_fields(
    positions: torch.Tensor,
    lens: torch.Tensor,
    raw_out_loc: torch.Tensor,
    page_table: torch.Tensor,
    layout: CacheLayout,
    *,
    entries: int,
) -> dict[str, torch.Tensor]:
    visible = lens // HCA
    entry = torch.arange(entries, device=lens.device)
    rows = compressed_rows(page_table, entries, layout.rows_per_page(HCA))
    rows = torch.where(entry < visible[:, None], rows, -1)
    return {
        "c128_out_loc": _completed(positions, raw_out_loc, HCA),
        "c128_topk_lengths_raw": visible,
        "c128_topk_lengths_clamp1": visible.clamp(min=1),
        "c128_page_indices": F.pad(rows, (0, _aligned(entries) - entries), value=-1),
    }


def _completed(positions: torch.Tensor, raw_out_loc: torch.Tensor, ratio: int) -> torch.Tensor:
    return torch.where((positions + 1) % ratio == 0, raw_out_loc // ratio, 0)


def _aligned(width: int) -> int:
    return -(-width // _ALIGNMENT) * _ALIGNMENT
