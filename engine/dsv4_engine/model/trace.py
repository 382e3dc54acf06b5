"""A seam for comparing a forward pass with a reference layer by layer; without a listener it does nothing."""

from __future__ import annotations

from typing import Protocol

import torch


class Recorder(Protocol):
    """Told the quantities of one layer as they come up, for example `attn_hc.post`."""

    def __call__(self, name: str, value: torch.Tensor) -> None: ...


def ignore(name: str, value: torch.Tensor) -> None:
    """Nobody compares."""


class TraceRecorder:
    """Keeps a copy of every quantity as `L{layer}.{name}`."""

    def __init__(self) -> None:
        self.values: dict[str, torch.Tensor] = {}

    def layer(self, index: int) -> Recorder:
        def record(name: str, value: torch.Tensor) -> None:
            self.values[f"L{index}.{name}"] = value.detach().clone()

        return record
