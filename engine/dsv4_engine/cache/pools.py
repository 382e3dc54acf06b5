"""The memory behind one layer's attention: recent raw keys, compressed keys, and unfinished compression windows."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from dsv4_engine.cache.layout import CacheLayout
from dsv4_engine.config import CSA, SLIDING, ModelConfig
from dsv4_engine.errors import EngineError


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

    @property
    def num_bytes(self) -> int:
        compressors = [pool for pool in (self.attention, self.indexer) if pool is not None]
        tensors = [self.window, *(tensor for pool in compressors for tensor in (pool.entries, pool.state))]
        return sum(tensor.nbytes for tensor in tensors)


def allocate_layers(
    config: ModelConfig, layout: CacheLayout, ratios: Sequence[int], *, device: torch.device, dtype: torch.dtype
) -> list[LayerPool]:
    """Zeroed pools of layers with the given compression ratios; EngineError where the device has no room for them."""
    needed = layout.num_slots * _slot_bytes(config, layout, ratios, dtype)
    available = _memory_bytes(device)
    refusal = EngineError(
        f"the caches of {layout.num_slots} requests need {_gib(needed)}, and {device} has {_gib(available)}",
        hint="lower max_requests or context_len",
    )
    if needed > available:
        raise refusal
    try:
        return [allocate_layer(config, layout, ratio, device=device, dtype=dtype) for ratio in ratios]
    except RuntimeError as error:  # an allocator's, which has no type of its own on the CPU
        raise refusal from error


def _slot_bytes(config: ModelConfig, layout: CacheLayout, ratios: Sequence[int], dtype: torch.dtype) -> int:
    """Bytes of one request's rows, and a little more, found without allocating any."""
    one, nowhere = replace(layout, num_slots=1), torch.device("meta")
    return sum(allocate_layer(config, one, ratio, device=nowhere, dtype=dtype).num_bytes for ratio in ratios)


def _memory_bytes(device: torch.device) -> int:
    """All of a host's memory, since files cached in it make room, or what is free on a GPU, torch's own reserve too."""
    if device.type == "cuda":
        reserve = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0] + reserve)
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _gib(count: int) -> str:
    return f"{count:,} bytes ({count / 2**30:,.1f} GiB)"


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
