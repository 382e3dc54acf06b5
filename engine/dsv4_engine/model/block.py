"""One transformer layer: attention, then experts, each read from and written to the residual streams."""

from __future__ import annotations

import torch

from dsv4_engine.cache.pools import LayerPool
from dsv4_engine.config import ModelConfig
from dsv4_engine.model.attention import Attention
from dsv4_engine.model.hyper_connections import HyperConnection, StreamMix
from dsv4_engine.model.moe import MixtureOfExperts
from dsv4_engine.model.norm import rms_norm
from dsv4_engine.model.step import StepInputs
from dsv4_engine.model.trace import Recorder
from dsv4_engine.model.weights import WeightReader
from dsv4_engine.parallel.groups import ParallelGroups


class Block:
    """The weights of `layers.N` or `mtp.0`; `layer_id` decides its compression ratio and kind of router."""

    def __init__(self, config: ModelConfig, weights: WeightReader, *, layer_id: int, groups: ParallelGroups) -> None:
        self._eps = config.rms_norm_eps
        self._attn_hc = HyperConnection(config, weights, "hc_attn")
        self._ffn_hc = HyperConnection(config, weights, "hc_ffn")
        self._attn_norm, self._ffn_norm = weights.precise("attn_norm.weight"), weights.precise("ffn_norm.weight")
        ratio = config.compress_ratios[layer_id]
        self._attention = Attention(config, weights.below("attn"), ratio=ratio, group=groups.tp)
        self._experts = MixtureOfExperts(
            config, weights.below("ffn"), by_token=config.is_hash_layer(layer_id), group=groups.experts
        )

    def __call__(self, streams: torch.Tensor, step: StepInputs, pool: LayerPool, record: Recorder) -> torch.Tensor:
        """(T, hc, D) streams -> (T, hc, D)."""
        mix = self._attn_hc.before(streams)
        _record_mix(record, "attn_hc", mix)
        normed = rms_norm(mix.collapsed, self._attn_norm, self._eps).to(streams.dtype)
        streams = self._attn_hc.after(self._attention(normed, step, pool, record), streams, mix)
        mix = self._ffn_hc.before(streams)
        _record_mix(record, "ffn_hc", mix)
        normed = rms_norm(mix.collapsed, self._ffn_norm, self._eps).to(streams.dtype)
        streams = self._ffn_hc.after(
            self._experts(normed, step.input_ids, record, peer_rows=step.peer_rows), streams, mix
        )
        record("streams_out", streams)
        return streams


def _record_mix(record: Recorder, name: str, mix: StreamMix) -> None:
    record(f"{name}.collapsed", mix.collapsed)
    record(f"{name}.post", mix.post)
    record(f"{name}.comb", mix.comb)
