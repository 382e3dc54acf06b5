"""Attention over gathered keys in plain torch: the definition that every faster backend is compared with."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from dsv4_engine.attention.metadata import WindowMeta

_BLOCK_ELEMENTS = 1 << 23
"""Gathered key elements held at once (32 MiB in float32): the bound on a long prefill's memory."""


@dataclass(frozen=True, kw_only=True)
class EntryKeys:
    """Compressed keys that rows may attend.

    pool: (N, d) entry rows. base: (T,) row of each query's first entry. chosen: (T, K) int64 entries to attend, -1 for
    none, or None for all of `visible`: (T,). max_entries: host bound of `visible`.
    """

    pool: torch.Tensor
    base: torch.Tensor
    visible: torch.Tensor
    chosen: torch.Tensor | None
    max_entries: int

    @property
    def width(self) -> int:
        return self.max_entries if self.chosen is None else self.chosen.shape[1]

    def gather(self, block: slice) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys (rows, width, d) of the block's rows, and which of them count (rows, width)."""
        if self.chosen is None:
            entry = torch.arange(self.max_entries, device=self.base.device)
            valid = entry < self.visible[block, None]
        else:
            entry = self.chosen[block]
            valid = entry >= 0
        return self.pool[self.base[block, None] + entry.clamp(min=0)], valid


def row_blocks(num_rows: int, elements_per_row: int) -> list[slice]:
    """Slices of query rows, each small enough that its gathered keys stay within the memory bound."""
    size = max(1, _BLOCK_ELEMENTS // max(1, elements_per_row))
    return [slice(start, min(start + size, num_rows)) for start in range(0, num_rows, size)]


def attend(
    query: torch.Tensor,
    chunk_keys: torch.Tensor,
    window_pool: torch.Tensor,
    window: WindowMeta,
    entries: EntryKeys | None,
    *,
    sink: torch.Tensor,
    scale: float,
) -> torch.Tensor:
    """One softmax over window keys, compressed keys and a sink whose value is zero; (T, H, d) float32.

    query: (T, H, d). chunk_keys: (T, d), this step's keys; earlier ones come from `window_pool`. sink: (H,) float32.
    A key is its own value. Nothing invalid is ever multiplied, so stale pool rows cannot leak, not even as NaN.
    """
    num_rows, _, dim = query.shape
    width = window.valid.shape[1] + (entries.width if entries else 0)
    outputs = []
    for block in row_blocks(num_rows, width * dim):
        keys = torch.where(
            window.in_chunk[block, :, None], chunk_keys[window.flat_index[block]], window_pool[window.ring_index[block]]
        )
        valid = window.valid[block]
        if entries is not None and entries.width:
            entry_keys, entry_valid = entries.gather(block)
            keys, valid = torch.cat((keys, entry_keys), 1), torch.cat((valid, entry_valid), 1)
        keys = keys.float().masked_fill_(~valid[..., None], 0)
        scores = torch.bmm(query[block].float(), keys.transpose(1, 2)).mul_(scale)
        scores.masked_fill_(~valid[:, None], float("-inf"))
        sinks = sink[:, None].expand(len(scores), -1, -1)
        weights = torch.softmax(torch.cat((scores, sinks), 2), 2)[..., :-1]
        outputs.append(torch.bmm(weights, keys))
    return outputs[0] if len(outputs) == 1 else torch.cat(outputs)
