"""Manifold-constrained hyper-connections: hc residual streams, mixed anew before and after every half-block.

How a half-block reads, writes and mixes the streams depends on the streams themselves. The mixing matrix is made doubly
stochastic by Sinkhorn iterations, so that stacking layers neither grows nor shrinks the residual (DeepSeek-V4 report,
arXiv 2606.19348). All in float32.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn import functional as F

from dsv4_engine.config import ModelConfig
from dsv4_engine.model.weights import WeightReader


def stream_features(streams: torch.Tensor, fn: torch.Tensor, eps: float) -> torch.Tensor:
    """(T, hc, D) -> (T, outputs): a linear map of the flattened streams, scaled by their common inverse RMS."""
    flat = streams.flatten(1).float()
    return F.linear(flat, fn) * torch.rsqrt(flat.square().mean(-1, keepdim=True) + eps)


def sinkhorn(logits: torch.Tensor, iterations: int, eps: float) -> torch.Tensor:
    """(..., hc, hc) logits -> nearly doubly stochastic matrices; columns are normalised first and last."""
    # A Python number is converted to a tensor in every addition: half of this loop's operators, and of its trace.
    small = logits.new_full((), eps)
    matrix = torch.softmax(logits, -1).add_(small)
    matrix.div_(matrix.sum(-2, keepdim=True).add_(small))
    for _ in range(iterations - 1):
        matrix.div_(matrix.sum(-1, keepdim=True).add_(small))
        matrix.div_(matrix.sum(-2, keepdim=True).add_(small))
    return matrix


def collapse(weights: torch.Tensor, streams: torch.Tensor) -> torch.Tensor:
    """Weighted sum of streams: (T, hc), (T, hc, D) -> (T, D) float32."""
    return torch.bmm(weights[:, None], streams.float())[:, 0]


@dataclass(frozen=True, kw_only=True)
class StreamMix:
    """collapsed: (T, D) input of the half-block. post: (T, hc) weight of its output in each stream. comb: (T, hc, hc),
    [source, destination] weights of the old streams in the new. All float32."""

    collapsed: torch.Tensor
    post: torch.Tensor
    comb: torch.Tensor


class HyperConnection:
    """One half-block's `hc_attn_*` or `hc_ffn_*` weights."""

    def __init__(self, config: ModelConfig, weights: WeightReader, name: str) -> None:
        self._hc = hc = config.hc_mult
        self._iterations, self._hc_eps, self._rms_eps = config.hc_sinkhorn_iters, config.hc_eps, config.rms_norm_eps
        self._fn = weights.precise(f"{name}_fn")
        self._base = weights.precise(f"{name}_base")
        # dsv4prof: allow[DSV108] once a checkpoint, while it loads
        sizes = torch.tensor((hc, hc, hc * hc), device=weights.device)
        self._scale = weights.precise(f"{name}_scale").repeat_interleave(sizes, output_size=len(self._base))

    def before(self, streams: torch.Tensor) -> StreamMix:
        """What the half-block reads from (T, hc, D) streams, and how its output is to be written back."""
        hc = self._hc
        features = torch.addcmul(self._base, stream_features(streams, self._fn, self._rms_eps), self._scale)
        gates = torch.sigmoid(features[:, : 2 * hc])
        comb = sinkhorn(features[:, 2 * hc :].unflatten(1, (hc, hc)), self._iterations, self._hc_eps)
        return StreamMix(
            collapsed=collapse(gates[:, :hc] + self._hc_eps, streams), post=gates[:, hc:] * 2, comb=comb
        )

    @staticmethod
    def after(output: torch.Tensor, streams: torch.Tensor, mix: StreamMix) -> torch.Tensor:
        """New (T, hc, D) streams: each takes its share of `output` (T, D) and of every old stream."""
        written = mix.post[:, :, None] * output.float()[:, None]
        return torch.baddbmm(written, mix.comb.transpose(1, 2), streams.float()).to(streams.dtype)


class StreamHead:
    """The `hc_head_*` weights: streams (T, hc, D) -> one vector (T, D) for the final norm."""

    def __init__(self, config: ModelConfig, weights: WeightReader) -> None:
        self._rms_eps, self._hc_eps = config.rms_norm_eps, config.hc_eps
        self._fn = weights.precise("hc_head_fn")
        self._base = weights.precise("hc_head_base")
        self._scale = weights.precise("hc_head_scale")

    def __call__(self, streams: torch.Tensor) -> torch.Tensor:
        features = stream_features(streams, self._fn, self._rms_eps)
        weights = torch.sigmoid(torch.addcmul(self._base, features, self._scale)) + self._hc_eps
        return collapse(weights, streams).to(streams.dtype)
