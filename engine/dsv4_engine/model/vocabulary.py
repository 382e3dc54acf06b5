"""Token embedding and output head, their rows split over the group's ranks and shared with the MTP layer."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from dsv4_engine.config import ModelConfig
from dsv4_engine.model.weights import WeightReader
from dsv4_engine.parallel.group import TensorParallelGroup


class Vocabulary:
    """`embed.weight` and `head.weight`; under TP each rank has an equal slice of the padded vocabulary."""

    def __init__(self, config: ModelConfig, weights: WeightReader, group: TensorParallelGroup) -> None:
        self._group, self._vocab_size = group, config.vocab_size
        self._embed = weights.matrix("embed.weight")
        self._head = weights.precise("head.weight")
        assert len(self._embed) * group.size >= config.vocab_size, "embedding rows do not cover the vocabulary"

    def embed(self, input_ids: torch.Tensor) -> torch.Tensor:
        """(T,) int64 -> (T, D) in the model's dtype."""
        if self._group.size == 1:
            return self._embed[input_ids]
        local = input_ids - self._group.rank * len(self._embed)
        outside = (local < 0) | (local >= len(self._embed))
        found = self._embed[local.clamp(0, len(self._embed) - 1)].masked_fill_(outside[:, None], 0)
        return self._group.all_reduce(found)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """(R, D) normed -> (R, V) float32."""
        return self._group.all_gather(F.linear(hidden.float(), self._head), 1)[:, : self._vocab_size]
