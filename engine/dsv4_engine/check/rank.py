"""Where one rank of a check computes, and with whom."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from dsv4_engine.parallel.group import TensorParallelGroup


@dataclass(frozen=True, kw_only=True)
class CheckRank:
    """A rank's group and its device."""

    group: TensorParallelGroup
    device: torch.device
