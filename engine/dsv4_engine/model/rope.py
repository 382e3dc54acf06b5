"""Rotary position embedding of the last dimensions of a head, with YaRN where keys are compressed.

Pairs are interleaved, (x[2i], x[2i+1]), and rotate as complex numbers. YaRN (arXiv 2309.00071) stretches the slow
frequencies only, and DSV4 uses no attention factor with it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from dsv4_engine.attention.metadata import DSV4Metadata
from dsv4_engine.config import SLIDING, ModelConfig, YarnScaling


def inverse_frequencies(dim: int, base: float, yarn: YarnScaling | None) -> torch.Tensor:
    """Radians per position of each of the dim/2 pairs, float32."""
    exponents = torch.arange(0, dim, 2, dtype=torch.float32) / dim
    frequencies = 1.0 / base**exponents
    if yarn is None:
        return frequencies

    def pair_turning(times: float) -> float:
        return dim * math.log(yarn.original_max_position_embeddings / (times * 2 * math.pi)) / (2 * math.log(base))

    low = max(math.floor(pair_turning(yarn.beta_fast)), 0)
    high = float(min(math.ceil(pair_turning(yarn.beta_slow)), dim - 1))
    if low == high:
        high += 0.001
    ramp = ((torch.arange(dim // 2, dtype=torch.float32) - low) / (high - low)).clamp(0, 1)
    return frequencies / yarn.factor * ramp + frequencies * (1 - ramp)


def rotation(positions: torch.Tensor, frequencies: torch.Tensor) -> torch.Tensor:
    """Unit complex numbers (..., dim/2) for integer positions (...)."""
    angles = positions[..., None] * frequencies
    return torch.polar(torch.ones_like(angles), angles)


def rotate(x: torch.Tensor, by: torch.Tensor) -> torch.Tensor:
    """Rotate the last 2n values of x (..., d) by unit complex numbers (..., n); the values before them stay."""
    rope_dim = 2 * by.shape[-1]
    plain, tail = x.split((x.shape[-1] - rope_dim, rope_dim), -1)
    pairs = torch.view_as_complex(tail.float().unflatten(-1, (-1, 2)).contiguous())
    turned = torch.view_as_real(pairs * by).flatten(-2)
    return torch.cat((plain, turned.to(x.dtype)), -1)


@dataclass(frozen=True, kw_only=True)
class StepRotations:
    """rows: by compression ratio, (T, n) for the query rows. entries: (C, n) for the entries that the step completes,
    each at the position of its window's first token."""

    rows: Mapping[int, torch.Tensor]
    entries: Mapping[int, torch.Tensor]


class RotaryEmbedding:
    """Sliding-only layers turn by `rope_theta` alone; compressed ones by `compress_rope_theta` with YaRN, keys,
    queries, compressor and indexer alike."""

    def __init__(self, config: ModelConfig, device: torch.device) -> None:
        dim = config.qk_rope_head_dim
        # dsv4prof: allow[DSV108] once a model, while it loads
        self._plain = inverse_frequencies(dim, config.rope_theta, None).to(device)
        # dsv4prof: allow[DSV108] once a model, while it loads
        self._compressed = inverse_frequencies(dim, config.compress_rope_theta, config.rope_scaling).to(device)

    def for_step(self, meta: DSV4Metadata) -> StepRotations:
        compressed = rotation(meta.positions, self._compressed) if meta.compress else None
        return StepRotations(
            rows={SLIDING: rotation(meta.positions, self._plain)}
            | {ratio: compressed for ratio in meta.compress if compressed is not None},
            entries={r: rotation(plan.entry_pos, self._compressed) for r, plan in meta.compress.items()},
        )
