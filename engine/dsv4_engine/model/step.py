"""What every layer of one forward pass is given beside its activations."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from dsv4_engine.attention.metadata import ForwardMeta
from dsv4_engine.model.rope import StepRotations


@dataclass(frozen=True, kw_only=True)
class StepInputs:
    """input_ids: (T,) int64, for layers whose experts follow from the token."""

    input_ids: torch.Tensor
    meta: ForwardMeta
    rotations: StepRotations
