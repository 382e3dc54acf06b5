"""Frequency, presence and repetition penalties from token counts that stay on the device, by cache slot.

In a verify, row i judges the place after the newest token and i drafts, so its counts include those drafts: exactly
what plain decoding would have counted there, had the drafts been accepted. If they are not, the row is not used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from dsv4_engine.batching import upload
from dsv4_engine.request import Request


@dataclass(frozen=True, kw_only=True)
class PenalisedRows:
    """rows: (P,) int64 rows of the logits. slots: (P,) int64. frequency, presence, repetition: (P,) float32."""

    rows: torch.Tensor
    slots: torch.Tensor
    frequency: torch.Tensor
    presence: torch.Tensor
    repetition: torch.Tensor


class TokenCounts:
    """What each slot's request has seen. Nothing is allocated until the first request with a penalty.

    produced: (slots, V) int32, output tokens. prompted: (slots, V) bool. Slot 0 is padding and collects what must not
    count.
    """

    def __init__(self, *, num_slots: int, vocab_size: int, device: torch.device) -> None:
        self._shape, self._device = (num_slots, vocab_size), device
        self.produced: torch.Tensor | None = None
        self.prompted: torch.Tensor | None = None

    def begin(self, requests: Sequence[Request]) -> None:
        """Requests whose prefill ends in this step: what was in their slots is forgotten, their own tokens count."""
        penalised = [request for request in requests if request.sampling.penalised]
        if not penalised:
            return
        produced, prompted = self._tables()
        for request in penalised:
            assert request.slot is not None
            prompt = upload(request.prompt, self._device)
            output = upload(request.tokens[len(request.prompt) : request.prefill_len], self._device)
            prompted[request.slot].zero_().index_fill_(0, prompt, 1)
            produced[request.slot].zero_().index_add_(0, output, torch.ones_like(output, dtype=torch.int32))

    def penalise(self, logits: torch.Tensor, rows: PenalisedRows, prefix: torch.Tensor) -> torch.Tensor:
        """(R, V) float32 logits -> new ones, P rows penalised. prefix: (R, k) int64 drafts before each row, V = none.

        Repetition divides positive logits and multiplies negative ones of tokens seen in prompt or output; frequency
        and presence, of the output alone, are subtracted after it.
        """
        produced, prompted = self._tables()
        counts = _with_prefix(produced[rows.slots], prefix[rows.rows])
        own = logits[rows.rows]
        seen = (counts > 0) | prompted[rows.slots]
        repetition = rows.repetition[:, None]
        own = torch.where(seen, torch.where(own > 0, own / repetition, own * repetition), own)
        own = own - rows.frequency[:, None] * counts - rows.presence[:, None] * (counts > 0)
        return logits.index_copy(0, rows.rows, own)

    def count(self, rows: PenalisedRows, tokens: torch.Tensor, kept: torch.Tensor) -> None:
        """(R,) int64 tokens of the step; those with `kept`, (R,) bool, become part of their request's output."""
        produced, _ = self._tables()
        slots = torch.where(kept[rows.rows], rows.slots, 0)
        flat = slots * self._shape[1] + tokens[rows.rows]
        produced.view(-1).index_add_(0, flat, torch.ones_like(flat, dtype=torch.int32))

    def _tables(self) -> tuple[torch.Tensor, torch.Tensor]:
        if self.produced is None or self.prompted is None:
            self.produced = torch.zeros(self._shape, dtype=torch.int32, device=self._device)
            self.prompted = torch.zeros(self._shape, dtype=torch.bool, device=self._device)
        return self.produced, self.prompted


def _with_prefix(counts: torch.Tensor, prefix: torch.Tensor) -> torch.Tensor:
    """(P, V) int32 counts and the (P, k) drafts before each row, V for none."""
    if prefix.shape[1] == 0:
        return counts
    spare = torch.nn.functional.pad(counts, (0, 1))
    return spare.scatter_add_(1, prefix, torch.ones_like(prefix, dtype=counts.dtype))[:, :-1]


def draft_prefixes(windows: torch.Tensor, vocab_size: int) -> torch.Tensor:
    """(B, n) int64 window ids, newest token first -> (B * n, n - 1): row i's drafts 1 to i, then `vocab_size`."""
    drafts = windows[:, None, 1:].expand(-1, windows.shape[1], -1)
    before = torch.ones(windows.shape[1], windows.shape[1] - 1, dtype=torch.bool, device=windows.device).tril(-1)
    return torch.where(before, drafts, vocab_size).flatten(0, 1)
