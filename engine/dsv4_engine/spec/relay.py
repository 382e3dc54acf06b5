"""What one speculative step hands to the next, kept on the device by cache slot so that nothing is read back."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, kw_only=True)
class Relay:
    """first_draft: (slots,) int64, the token guessed to follow the newest one.

    streams: (slots, hc, D), the MTP layer's own streams of the row that made this guess.
    """

    first_draft: torch.Tensor
    streams: torch.Tensor

    @classmethod
    def allocate(
        cls, *, slots: int, hc_mult: int, hidden_size: int, device: torch.device, dtype: torch.dtype
    ) -> Relay:
        return cls(
            first_draft=torch.zeros(slots, dtype=torch.int64, device=device),
            streams=torch.zeros(slots, hc_mult, hidden_size, dtype=dtype, device=device),
        )

    def store(self, slots: torch.Tensor, first_draft: torch.Tensor, streams: torch.Tensor) -> None:
        """Keep (R,) guesses and (R, hc, D) streams for (R,) slots."""
        self.first_draft[slots] = first_draft
        self.streams[slots] = streams
