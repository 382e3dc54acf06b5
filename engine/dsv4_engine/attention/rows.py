"""What a query row needs to know of the request that it belongs to."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, kw_only=True)
class RowMeta:
    """Per-request values, one for each of T query rows; all (T,) int64.

    request: index in the batch. slot: its cache slot. chunk_start: position of its first row in this step.
    chunk_row: that row's index. final_pos: position of its last row. Padded rows, which belong to no request, have slot
    0, and a final position so far ahead of their own, 0, that no ring keeps them.
    """

    request: torch.Tensor
    slot: torch.Tensor
    chunk_start: torch.Tensor
    chunk_row: torch.Tensor
    final_pos: torch.Tensor


def kept(positions: torch.Tensor, rows: RowMeta, ring: int) -> torch.Tensor:
    """(T,) bool: rows that a ring still holds after the step. Rows further back would land on later rows' places."""
    return positions > rows.final_pos - ring
