"""The memory behind one layer's attention: recent raw keys, compressed keys, and unfinished compression windows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from dsv4_engine.cache.budget import cache_plan, gib, memory_bytes
from dsv4_engine.cache.layout import CacheLayout, carried_state
from dsv4_engine.cache.tails import LayerTail
from dsv4_engine.config import CSA, SLIDING, ModelConfig
from dsv4_engine.errors import EngineError


@dataclass(frozen=True, kw_only=True)
class CompressorPool:
    """keys: (pages * rows_per_page, d) in the model's dtype. state: (slots * state_ring, 2, width) float32, kv and
    score of each recent token, with width = 2d where windows overlap and d where they do not."""

    keys: torch.Tensor
    state: torch.Tensor


@dataclass(frozen=True, kw_only=True)
class LayerPool:
    """unified: (swa_pages + pages * rows_per_page, head_dim), one vector a token or entry, key and value at once.

    attention: its `keys` are the compressed part of `unified`, not memory of their own. indexer: in ratio-4 layers.
    tail: the layer's snapshots, None where none are kept.
    """

    unified: torch.Tensor
    attention: CompressorPool | None
    indexer: CompressorPool | None
    tail: LayerTail | None

    def tensors(self) -> Iterator[torch.Tensor]:
        """Every tensor that owns memory."""
        yield self.unified
        if self.attention is not None:
            yield self.attention.state
        if self.indexer is not None:
            yield from (self.indexer.keys, self.indexer.state)
        if self.tail is not None:
            states = (self.tail.attention_state, self.tail.indexer_state)
            yield from (self.tail.window, *(state for state in states if state is not None))

    @property
    def num_bytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.tensors())


def allocate_layers(
    config: ModelConfig, layout: CacheLayout, ratios: Sequence[int], *, device: torch.device, dtype: torch.dtype
) -> list[LayerPool]:
    """Zeroed pools of layers with the given compression ratios; EngineError where the device has no room for them."""
    needed = cache_plan(config, layout, ratios, dtype=dtype).num_bytes
    available = memory_bytes(device)
    refusal = EngineError(
        f"the caches of {layout.num_slots - 1} requests need {gib(needed)}, and {device} has {gib(available)}",
        hint="lower max_requests or context_len",
    )
    if needed > available:
        raise refusal
    try:
        return [allocate_layer(config, layout, ratio, device=device, dtype=dtype) for ratio in ratios]
    except RuntimeError as error:  # an allocator's, which has no type of its own on the CPU
        raise refusal from error


def allocate_layer(
    config: ModelConfig, layout: CacheLayout, ratio: int, *, device: torch.device, dtype: torch.dtype
) -> LayerPool:
    """Zeroed pools of one layer; which ones exist depends on its compression ratio."""
    swa_pages, rows = layout.swa_pages, layout.compressed_rows(ratio)

    def state(*shape: int) -> torch.Tensor:
        return torch.zeros(*shape, device=device, dtype=torch.float32)

    def keys(*shape: int) -> torch.Tensor:
        return torch.zeros(*shape, device=device, dtype=dtype)

    unified = keys(swa_pages + rows, config.head_dim)
    attention = indexer = None
    if ratio != SLIDING:
        width = 2 * config.head_dim if ratio == CSA else config.head_dim
        attention = CompressorPool(keys=unified[swa_pages:], state=state(layout.state_rows(ratio), 2, width))
    if ratio == CSA:
        indexer = CompressorPool(
            keys=keys(rows, config.index_head_dim), state=state(layout.state_rows(ratio), 2, 2 * config.index_head_dim)
        )
    tail = None
    if layout.num_tails:
        carried = carried_state(ratio) if ratio else 0
        tail = LayerTail(
            window=keys(layout.num_tails, layout.window, config.head_dim),
            attention_state=state(layout.num_tails, carried, 2, 2 * config.head_dim) if carried else None,
            indexer_state=state(layout.num_tails, carried, 2, 2 * config.index_head_dim) if carried else None,
        )
    return LayerPool(unified=unified, attention=attention, indexer=indexer, tail=tail)
