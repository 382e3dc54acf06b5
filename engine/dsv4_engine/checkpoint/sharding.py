"""One rank's part of every tensor, and which group sizes a model can be divided into."""

from __future__ import annotations

import math

import torch

from dsv4_engine.checkpoint.layout import Split, TensorSpec
from dsv4_engine.config import CSA, ModelConfig
from dsv4_engine.errors import EngineError


def require_divisible(config: ModelConfig, size: int) -> None:
    """Refuse (EngineError) a tensor-parallel size that does not divide the heads, output groups or indexer heads."""
    legal = legal_sizes(config)
    if size in legal:
        return
    parts = {"attention heads": config.num_attention_heads, "output groups": config.o_groups}
    if CSA in config.compress_ratios:
        parts["indexer heads"] = config.index_n_heads
    named = next(f"{count} {what}" for what, count in parts.items() if size < 1 or count % size)
    raise EngineError(
        f"the model's {named} cannot be divided over {size} ranks",
        hint=f"tensor-parallel sizes that work for this model: {', '.join(map(str, legal))}",
    )


def legal_sizes(config: ModelConfig) -> tuple[int, ...]:
    """Every tensor-parallel size that this model can be cut into, ascending."""
    common = math.gcd(config.num_attention_heads, config.o_groups)
    if CSA in config.compress_ratios:
        common = math.gcd(common, config.index_n_heads)
    return tuple(size for size in range(1, common + 1) if common % size == 0)


def is_local(spec: TensorSpec, *, rank: int, size: int, num_experts: int) -> bool:
    """Whether this rank holds any part of the tensor: experts are dealt out in blocks of ceil(experts / size) ids."""
    if spec.expert is None:
        return True
    return spec.expert // math.ceil(num_experts / size) == rank


def shard(tensor: torch.Tensor, split: Split, *, rank: int, size: int) -> torch.Tensor:
    """This rank's part, contiguous; rows of whole heads or groups lie together because sizes divide them."""
    if size == 1 or split in (Split.REPLICATED, Split.EXPERT):
        return tensor
    if split is Split.VOCABULARY:
        missing = -tensor.shape[0] % size
        tensor = torch.nn.functional.pad(tensor, (0, 0, 0, missing))
    dim = 1 if split is Split.COLUMNS else 0
    return tensor.chunk(size, dim)[rank].contiguous()
