"""The memory behind one layer's attention: recent raw keys, compressed keys, and unfinished compression windows."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from dsv4_engine.cache.layout import CacheLayout
from dsv4_engine.config import CSA, SLIDING, ModelConfig


@dataclass(frozen=True, kw_only=True)
class CompressorPool:
    """entries: (slots * entries + 1, d) in the model's dtype. state: (slots * state_ring + 1, 2, width) float32,
    kv and score of each recent token, with width = 2d where windows overlap and d where they do not."""

    entries: torch.Tensor
    state: torch.Tensor


@dataclass(frozen=True, kw_only=True)
class LayerPool:
    """window: (slots * window_ring + 1, head_dim), one vector a token, key and value at once."""

    window: torch.Tensor
    attention: CompressorPool | None
    indexer: CompressorPool | None


def allocate_layer(
    config: ModelConfig, layout: CacheLayout, ratio: int, *, device: torch.device, dtype: torch.dtype
) -> LayerPool:
    """Zeroed pools of one layer; which ones exist depends on its compression ratio."""

    def compressor(dim: int) -> CompressorPool:
        width = 2 * dim if ratio == CSA else dim
        return CompressorPool(
            entries=torch.zeros(layout.entry_trash(ratio) + 1, dim, device=device, dtype=dtype),
            state=torch.zeros(layout.state_trash(ratio) + 1, 2, width, device=device, dtype=torch.float32),
        )

    return LayerPool(
        window=torch.zeros(layout.window_trash + 1, config.head_dim, device=device, dtype=dtype),
        attention=None if ratio == SLIDING else compressor(config.head_dim),
        indexer=compressor(config.index_head_dim) if ratio == CSA else None,
    )
