"""One rank's part of every tensor."""

from __future__ import annotations

import math

import torch

from dsv4_engine.checkpoint.layout import Split, TensorSpec


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
