"""The main model: embedding, layers, and the head that turns streams into logits."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from dsv4_engine.cache.pools import LayerPool
from dsv4_engine.config import ModelConfig
from dsv4_engine.model.block import Block
from dsv4_engine.model.hyper_connections import StreamHead
from dsv4_engine.model.norm import rms_norm
from dsv4_engine.model.step import StepInputs
from dsv4_engine.model.trace import TraceRecorder, ignore
from dsv4_engine.model.vocabulary import Vocabulary
from dsv4_engine.model.weights import WeightReader
from dsv4_engine.parallel.groups import ParallelGroups


class OutputHead:
    """Streams -> logits, with the final norm and stream head of either model and the shared vocabulary."""

    def __init__(self, config: ModelConfig, weights: WeightReader, vocabulary: Vocabulary) -> None:
        self._vocabulary, self._eps = vocabulary, config.rms_norm_eps
        self._stream_head = StreamHead(config, weights)
        self._norm = weights.precise("norm.weight")

    def __call__(self, streams: torch.Tensor, rows: torch.Tensor | None) -> torch.Tensor:
        """(T, hc, D) -> (R, V) float32 logits of the given rows, all of them for None."""
        chosen = streams if rows is None else streams[rows]
        return self._vocabulary.logits(rms_norm(self._stream_head(chosen), self._norm, self._eps))


class TargetModel:
    """All main layers. Weights are this rank's slices under their official names."""

    def __init__(
        self, config: ModelConfig, weights: WeightReader, vocabulary: Vocabulary, groups: ParallelGroups
    ) -> None:
        self._hc = config.hc_mult
        self._vocabulary = vocabulary
        self._blocks = [
            Block(config, weights.below(f"layers.{index}"), layer_id=index, groups=groups)
            for index in range(config.num_hidden_layers)
        ]
        self.head = OutputHead(config, weights, vocabulary)

    def __call__(
        self, step: StepInputs, pools: Sequence[LayerPool], trace: TraceRecorder | None = None
    ) -> torch.Tensor:
        """The streams (T, hc, D) after the last layer."""
        streams = self._vocabulary.embed(step.input_ids)[:, None].expand(-1, self._hc, -1)
        for index, (block, pool) in enumerate(zip(self._blocks, pools, strict=True)):
            streams = block(streams, step, pool, trace.layer(index) if trace else ignore)
        return streams
