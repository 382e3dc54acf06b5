"""The multi-token-prediction layer: from the streams at p and the token at p+1 it predicts the token at p+2."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from dsv4_engine.cache.pools import LayerPool
from dsv4_engine.config import ModelConfig
from dsv4_engine.model.block import Block
from dsv4_engine.model.norm import rms_norm
from dsv4_engine.model.step import StepInputs
from dsv4_engine.model.target import OutputHead
from dsv4_engine.model.trace import ignore
from dsv4_engine.model.vocabulary import Vocabulary
from dsv4_engine.model.weights import WeightReader
from dsv4_engine.parallel.groups import ParallelGroups


class MtpModel:
    """The `mtp.0` weights; embedding and output head are the main model's."""

    def __init__(
        self, config: ModelConfig, weights: WeightReader, vocabulary: Vocabulary, groups: ParallelGroups
    ) -> None:
        self._vocabulary, self._eps = vocabulary, config.rms_norm_eps
        self._embed_norm, self._streams_norm = weights.precise("enorm.weight"), weights.precise("hnorm.weight")
        self._embed_proj, self._streams_proj = weights.matrix("e_proj.weight"), weights.matrix("h_proj.weight")
        self._block = Block(config, weights, layer_id=config.mtp_layer_id, groups=groups)
        self.head = OutputHead(config, weights, vocabulary)

    def __call__(self, step: StepInputs, streams: torch.Tensor, pool: LayerPool) -> torch.Tensor:
        """Row p takes the streams (T, hc, D) of position p before any head, the main model's or, in a draft chain, this
        layer's own; `step.input_ids` holds the token after it. Returns this layer's streams (T, hc, D)."""
        embedded = rms_norm(self._vocabulary.embed(step.input_ids), self._embed_norm, self._eps)
        normed = rms_norm(streams, self._streams_norm, self._eps)
        mixed = F.linear(embedded, self._embed_proj)[:, None] + F.linear(normed, self._streams_proj)
        return self._block(mixed, step, pool, ignore)
