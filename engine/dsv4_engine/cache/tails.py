"""Snapshots from which a prefix can be continued: what a layer must remember of the tokens before a page border.

A query at `boundary` reads the window's last rows, and the first ratio-4 window there overlaps with its predecessor.
Both live in rings of the slot that computed them, so a prefix shared through pages needs a copy. Ratio-128 windows end
at every page border and hand nothing on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from dsv4_engine.cache.layout import carried_state


@dataclass(frozen=True, kw_only=True)
class LayerTail:
    """window: (num_tails, window, head_dim), row i of position boundary - window + i. attention_state, indexer_state:
    (num_tails, 4, 2, width) float32 of the last four positions, in ratio-4 layers alone. Row 0 takes refused saves."""

    window: torch.Tensor
    attention_state: torch.Tensor | None
    indexer_state: torch.Tensor | None


@dataclass(frozen=True, kw_only=True)
class TailSaves:
    """Prefixes that end within a prefill's rows: (S,) int64 values of each.

    boundary: tokens of the prefix. tail: row of the tail pools, 0 where the step does not reach the prefix's end. slot:
    cache slot. chunk_start: position of its first row in this step. chunk_row: that row's index. window, window_ring,
    state_ring: the layout's.
    """

    boundary: torch.Tensor
    tail: torch.Tensor
    slot: torch.Tensor
    chunk_start: torch.Tensor
    chunk_row: torch.Tensor
    window: int
    window_ring: int
    state_ring: Mapping[int, int]

    def windows(self, chunk: torch.Tensor, unified: torch.Tensor) -> torch.Tensor:
        """(S, window, d) raw keys before each boundary, out of this step's (T, d) and a pool not yet written."""
        return self._collect(chunk, unified, ring=self.window_ring, count=self.window)

    def states(self, chunk: torch.Tensor, state: torch.Tensor, ratio: int) -> torch.Tensor:
        """(S, carried rows, 2, width) compressor state before each boundary, likewise."""
        return self._collect(chunk, state, ring=self.state_ring[ratio], count=carried_state(ratio))

    def _collect(self, chunk: torch.Tensor, rings: torch.Tensor, *, ring: int, count: int) -> torch.Tensor:
        position = last_positions(self.boundary, count)
        inside = position >= self.chunk_start[:, None]
        flat = (position + (self.chunk_row - self.chunk_start)[:, None]).clamp_(0, len(chunk) - 1)
        stored = rings[ring_rows(self.slot, position, ring)]
        return torch.where(inside.reshape(*inside.shape, *(1,) * (chunk.dim() - 1)), chunk[flat], stored)


def last_positions(boundary: torch.Tensor, count: int) -> torch.Tensor:
    """(S,) -> (S, count): boundary - count to boundary - 1, negative where the prefix is shorter."""
    return boundary[:, None] + torch.arange(-count, 0, device=boundary.device)


def ring_rows(slot: torch.Tensor, position: torch.Tensor, ring: int) -> torch.Tensor:
    """Ring rows (S, count) of positions (S, count); the padding slot's where there is no such position."""
    return torch.where(position >= 0, slot[:, None] * ring + position % ring, 0)


def save_from_ring(
    target: torch.Tensor, rings: torch.Tensor, slot: torch.Tensor, boundary: torch.Tensor, tail: torch.Tensor, ring: int
) -> None:
    """Copy each prefix's last target.shape[1] rows out of its slot's ring into row `tail` of `target`."""
    target[tail] = rings[ring_rows(slot, last_positions(boundary, target.shape[1]), ring)]


def load_to_ring(
    rings: torch.Tensor, source: torch.Tensor, slot: torch.Tensor, boundary: torch.Tensor, tail: torch.Tensor, ring: int
) -> None:
    """Put row `tail` of `source` back into the slot's ring, as if the slot had computed the prefix itself."""
    rings[ring_rows(slot, last_positions(boundary, source.shape[1]), ring)] = source[tail]
