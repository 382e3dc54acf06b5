"""One rank's part of every tensor."""

from __future__ import annotations

import torch

from dsv4_engine.checkpoint.layout import Split, TensorSpec
from dsv4_engine.parallel.place import Place


def is_local(spec: TensorSpec, place: Place, *, num_experts: int) -> bool:
    """Whether this rank holds any part of the tensor."""
    return spec.expert is None or spec.expert in place.local_experts(num_experts)


def shard(tensor: torch.Tensor, split: Split, place: Place) -> torch.Tensor:
    """This rank's part, contiguous; rows of whole heads or groups lie together because sizes divide them."""
    if split in (Split.EXPERT_ROWS, Split.EXPERT_COLUMNS):
        parts, mine = place.sizes.expert_slices, place.expert_slice
    else:
        parts, mine = place.sizes.tp, place.tp_rank
    if parts == 1 or split is Split.REPLICATED:
        return tensor
    if split is Split.VOCABULARY:
        tensor = torch.nn.functional.pad(tensor, (0, 0, 0, -tensor.shape[0] % parts))
    dim = 1 if split in (Split.COLUMNS, Split.EXPERT_COLUMNS) else 0
    return tensor.chunk(parts, dim)[mine].contiguous()
