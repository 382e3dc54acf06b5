"""`dsv4-tiny`: a complete DSV4 model small enough for one CPU core, made from a seed so that nothing is downloaded.

Its weights are random, so its text is noise; but its layers, caches and MTP layer do real work. The MTP layer's
`e_proj` is near a scaled identity and embeddings are large, so that target and MTP mostly follow the last token and
drafts are accepted at a useful rate.
"""

from __future__ import annotations

import math

import torch

from dsv4_engine.checkpoint.layout import TensorSpec, tensor_specs
from dsv4_engine.config import ModelConfig

_SEED = 42
_EMBED_STD = 4.0
_E_PROJ_GAIN = 3.0
_H_PROJ_GAIN = 0.3
_HEAD_GAIN = 2.0


def tiny_weights(config: ModelConfig) -> dict[str, torch.Tensor]:
    """All weights in fp32 (and int64), the same on every machine: drawn in name order from one CPU generator.

    Matrices are rounded to bfloat16, so that every dtype computes with the same numbers.
    """
    generator = torch.Generator(device="cpu").manual_seed(_SEED)
    specs = sorted(tensor_specs(config).items())
    return {name: _draw(name, spec, config, generator) for name, spec in specs}


def _draw(name: str, spec: TensorSpec, config: ModelConfig, generator: torch.Generator) -> torch.Tensor:
    if spec.integer:
        order = torch.rand(config.vocab_size, config.n_routed_experts, generator=generator).argsort(dim=1)
        return order[:, : config.num_experts_per_tok].contiguous()
    noise = torch.randn(spec.shape, generator=generator)
    values = _scaled(name, spec, noise)
    return values if spec.fp32 else values.to(torch.bfloat16).to(torch.float32)


def _scaled(name: str, spec: TensorSpec, noise: torch.Tensor) -> torch.Tensor:
    leaf = name.rsplit(".", 1)[-1]
    if name == "embed.weight":
        return _EMBED_STD * noise
    if leaf.endswith("_scale"):
        return 1.0 + 0.2 * noise
    if leaf.endswith("_base") or leaf == "ape":
        return 0.5 * noise
    if leaf == "bias":
        return 0.1 * noise
    if leaf == "attn_sink":
        return noise
    if len(spec.shape) == 1:
        return 1.0 + 0.15 * noise
    fan_in = noise / math.sqrt(spec.shape[1])
    if name == "head.weight":
        return _HEAD_GAIN * fan_in
    if name.endswith("h_proj.weight"):
        return _H_PROJ_GAIN * fan_in
    if name.endswith("e_proj.weight"):
        return 0.2 * fan_in + _E_PROJ_GAIN * torch.eye(spec.shape[0])
    return fan_in
