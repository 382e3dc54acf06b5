"""What every layer of one forward pass is given beside its activations."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from dsv4_engine.attention.backends.base import AttentionBackend
from dsv4_engine.attention.metadata import DSV4Metadata
from dsv4_engine.model.rope import StepRotations


@dataclass(frozen=True, kw_only=True)
class StepInputs:
    """input_ids: (T,) int64. plan: the backend's own tensors of the step. All but `backend` are nested tensors, so that
    `attention.tree` copies a step into the one that a graph was captured with. peer_rows: see ForwardBatch."""

    input_ids: torch.Tensor
    meta: DSV4Metadata
    rotations: StepRotations
    backend: AttentionBackend
    plan: object
    peer_rows: int | None = None
