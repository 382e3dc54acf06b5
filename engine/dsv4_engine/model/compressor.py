"""Pools the keys of `ratio` tokens into one entry by a learned softmax per channel.

Ratio-128 windows stand alone. Ratio-4 windows overlap: an entry pools its own four tokens through the upper half of the
channels and the four before them through the lower half.
"""

from __future__ import annotations

import torch
from torch.nn import functional as F

from dsv4_engine.attention.compress_plan import CompressPlan
from dsv4_engine.cache.pools import CompressorPool
from dsv4_engine.cache.tails import TailSaves
from dsv4_engine.config import CSA, ModelConfig
from dsv4_engine.model.norm import rms_norm
from dsv4_engine.model.rope import rotate
from dsv4_engine.model.weights import WeightReader


class Compressor:
    """One `compressor.*` of width `dim`: attention's or the indexer's. All in float32."""

    def __init__(self, config: ModelConfig, weights: WeightReader, *, ratio: int, dim: int) -> None:
        self._ratio, self._dim, self._eps = ratio, dim, config.rms_norm_eps
        self._kv_gate = torch.cat((weights.precise("wkv.weight"), weights.precise("wgate.weight")))
        ape = weights.precise("ape")
        self._ape = torch.stack((torch.zeros_like(ape), ape), 1)
        self._norm = weights.precise("norm.weight")

    def __call__(
        self,
        x: torch.Tensor,
        plan: CompressPlan,
        pool: CompressorPool,
        entry_rotation: torch.Tensor,
        saves: TailSaves | None,
        tail: torch.Tensor | None,
    ) -> None:
        """Store the entries that rows x (T, D) complete, and the state that later windows need.

        State is read before any is written: a long chunk overwrites ring rows that its first windows still need.
        saves, tail: the state before some page borders goes into rows of `tail` (num_tails, n, 2, width) as well.
        """
        state = F.linear(x.float(), self._kv_gate).unflatten(1, (2, -1)) + self._ape[plan.state_phase]
        entries = rotate(rms_norm(self._pooled(state, plan, pool), self._norm, self._eps), entry_rotation)
        pool.keys[plan.out_loc] = entries.to(pool.keys.dtype)
        if saves is not None and tail is not None:
            tail[saves.tail] = saves.states(state, pool.state, self._ratio)
        pool.state[plan.state_write] = state

    def _pooled(self, state: torch.Tensor, plan: CompressPlan, pool: CompressorPool) -> torch.Tensor:
        source = torch.where(
            plan.in_chunk[..., None, None], state[plan.flat_index], pool.state[plan.ring_index]
        )  # (C, span, 2, width)
        if self._ratio == CSA:
            previous, current = source.split(self._ratio, 1)
            source = torch.cat((previous[..., : self._dim], current[..., self._dim :]), 1)
        kv, score = source.unbind(2)
        absent = ~plan.valid[..., None]
        weights = torch.softmax(score.masked_fill(absent, float("-inf")), 1)
        return (weights * kv.masked_fill(absent, 0)).sum(1)
