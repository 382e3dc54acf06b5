"""What one step hands to the next, kept on the device by cache slot so that nothing is read back (SGLang: FutureMap).

A decode step is built from it without any host knowledge of lengths: the host launches step n + 1 before it knows how
many drafts step n accepted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from dsv4_engine.batching import DecodeState, slot_of, upload
from dsv4_engine.plan import Running


@dataclass(frozen=True, kw_only=True)
class Relay:
    """By slot; slot 0 is padding and stays zero.

    seq_lens: (slots,) int64, tokens cached. newest: (slots,) int64, the token after them, not cached yet. first_draft:
    (slots,) int64, the token guessed to follow the newest one. streams: (slots, hc, D), the MTP layer's own streams of
    the row that made this guess. Without an MTP layer the last two are empty.
    """

    seq_lens: torch.Tensor
    newest: torch.Tensor
    first_draft: torch.Tensor
    streams: torch.Tensor

    @classmethod
    def allocate(cls, *, slots: int, hc_mult: int, hidden_size: int, device: torch.device, dtype: torch.dtype) -> Relay:
        def integers() -> torch.Tensor:
            return torch.zeros(slots, dtype=torch.int64, device=device)

        return cls(
            seq_lens=integers(),
            newest=integers(),
            first_draft=integers(),
            streams=torch.zeros(slots, hc_mult, hidden_size, dtype=dtype, device=device),
        )

    def advance(self, slots: torch.Tensor, seq_lens: torch.Tensor, newest: torch.Tensor) -> None:
        """Tokens cached and newest token of (R,) slots, known before the MTP layer has made its next guess."""
        self.seq_lens[slots] = seq_lens
        self.newest[slots] = newest

    def guess(self, slots: torch.Tensor, first_draft: torch.Tensor, streams: torch.Tensor) -> None:
        """First drafts (R,) and their streams (R, hc, D) of (R,) slots."""
        self.first_draft[slots] = first_draft
        self.streams[slots] = streams


class SlotUploads:
    """Slots of the running requests on the device, uploaded when they change."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._host: tuple[int, ...] = ()
        self._slots = torch.empty(0, dtype=torch.int64, device=device)

    def get(self, running: Sequence[Running]) -> torch.Tensor:
        slots = tuple(slot_of(each.request) for each in running)
        if slots != self._host:
            self._slots, self._host = upload(slots, self._device), slots
        return self._slots


def decode_state(
    relay: Relay,
    slots: torch.Tensor,
    running: Sequence[Running],
    *,
    lengths_known: bool,
    peer_requests: int | None = None,
) -> DecodeState:
    """Where the running requests stand. lengths_known: `Running.max_cached` is exact, so the host has lengths too."""
    bounds = tuple(each.max_cached for each in running)
    return DecodeState(
        slots=slots,
        starts=relay.seq_lens[slots],
        newest=relay.newest[slots],
        max_start=max(bounds, default=0),
        starts_host=bounds if lengths_known else None,
        peer_requests=peer_requests,
    )
