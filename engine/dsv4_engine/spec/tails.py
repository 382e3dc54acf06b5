"""Tails of running requests: kept after a step that, by the device's count, committed the prefix's last token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from dsv4_engine.batching import upload
from dsv4_engine.plan import TailSave
from dsv4_engine.spec.relay import Relay


class TailModel(Protocol):
    """The part of `runner.ModelRunner` that keeps tails; all (S,) int64 on the device."""

    def save_tails(
        self,
        slots: torch.Tensor,
        boundaries: torch.Tensor,
        tails: torch.Tensor,
        starts: torch.Tensor,
        committed_ends: torch.Tensor,
    ) -> None: ...


class TailHolder(Protocol):
    """Who has the model."""

    @property
    def model(self) -> TailModel: ...


@dataclass(frozen=True, kw_only=True)
class BegunSaves:
    """wanted: (3, S) int64, slot, boundary and tail row of each. starts: (S,) tokens cached before the step."""

    wanted: torch.Tensor
    starts: torch.Tensor


class RunningTails:
    def __init__(self, holder: TailHolder, relay: Relay, device: torch.device) -> None:
        self._holder, self._relay, self._device = holder, relay, device

    def begin(self, saves: Sequence[TailSave]) -> BegunSaves | None:
        """Before the relay advances: where the slots stand."""
        if not saves:
            return None
        wanted = upload(
            ([save.slot for save in saves], [save.boundary for save in saves], [save.tail for save in saves]),
            self._device,
        )
        return BegunSaves(wanted=wanted, starts=self._relay.seq_lens[wanted[0]])

    def finish(self, begun: BegunSaves | None) -> None:
        """After the step's last forward."""
        if begun is None:
            return
        slots, boundaries, tails = begun.wanted.unbind()
        self._holder.model.save_tails(slots, boundaries, tails, begun.starts, self._relay.seq_lens[slots])
