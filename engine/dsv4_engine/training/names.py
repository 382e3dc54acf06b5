"""Between a trainable model's state and the tensors of an official checkpoint."""

from __future__ import annotations

import re
from collections.abc import Mapping

import torch

_STACKED = re.compile(r"(.*\.ffn)\.(w[123])")
_HYPER = re.compile(r"(.*)\b(hc_attn|hc_ffn|hc_head)\.(fn|base|scale)")


def official_name(name: str, *, expert: int = 0) -> str:
    """The checkpoint's name of a parameter or buffer; of stacked experts, that of one of them."""
    if (stacked := _STACKED.fullmatch(name)) is not None:
        return f"{stacked[1]}.experts.{expert}.{stacked[2]}.weight"
    if (hyper := _HYPER.fullmatch(name)) is not None:
        return "{}{}_{}".format(*hyper.groups())
    return name


def official_tensors(state: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """A `TrainableModel`'s state dict under official names, on the CPU, in float32 (and int64), experts one by one."""
    tensors: dict[str, torch.Tensor] = {}
    for name, value in state.items():
        # dsv4prof: allow[DSV103] once a checkpoint
        value = value.detach().cpu()
        parts = value if _STACKED.fullmatch(name) else value[None]
        for expert, part in enumerate(parts):
            tensors[official_name(name, expert=expert)] = part if part.dtype == torch.int64 else part.float()
    return tensors


def model_state(
    names: Mapping[str, torch.Tensor], tensors: Mapping[str, torch.Tensor], num_experts: int
) -> dict[str, torch.Tensor]:
    """A checkpoint's tensors as the state dict of the model whose state dict has these names."""
    return {
        name: torch.stack([tensors[official_name(name, expert=expert)] for expert in range(num_experts)])
        if _STACKED.fullmatch(name)
        else tensors[official_name(name)]
        for name in names
    }
