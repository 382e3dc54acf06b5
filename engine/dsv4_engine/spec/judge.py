"""From the target's logits to what a step gained: tokens, accept lengths, counts for later penalties."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from dsv4_engine.batching import DecodeState, upload
from dsv4_engine.plan import Running
from dsv4_engine.request import Request
from dsv4_engine.sampling.logprobs import LogprobValues
from dsv4_engine.sampling.noise import signed
from dsv4_engine.sampling.penalties import TokenCounts, draft_prefixes
from dsv4_engine.sampling.rows import LogprobRows, SamplingRows, SamplingRowsCache
from dsv4_engine.sampling.sampler import Chosen, choose
from dsv4_engine.spec.accept import accept_chain, simulated_accept_lens


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """first_tokens: (C,) int64 of prompts that completed. predicted: (B, n) int64, the target's token after each row of
    the running requests. accept_lens: (B,) int64, how many of them count. newest: (B,) the last one that does.
    """

    first_tokens: torch.Tensor
    predicted: torch.Tensor
    accept_lens: torch.Tensor
    newest: torch.Tensor
    logprobs: LogprobValues | None
    logprob_rows: LogprobRows | None


class Judge:
    """Chooses tokens and accepts drafts; owns the token counts of penalised requests."""

    def __init__(
        self, *, num_slots: int, vocab_size: int, device: torch.device, simulate_accept_len: float | None
    ) -> None:
        self._vocab_size, self._device, self._mean = vocab_size, device, simulate_accept_len
        self._rows = SamplingRowsCache(vocab_size, device)
        self._counts = TokenCounts(num_slots=num_slots, vocab_size=vocab_size, device=device)

    def __call__(
        self,
        logits: torch.Tensor,
        positions: torch.Tensor,
        *,
        completing: Sequence[Request],
        running: Sequence[Running],
        state: DecodeState | None,
        windows: torch.Tensor | None,
    ) -> Verdict:
        """(R, V) float32 logits and (R,) positions of C completing prompts, then of B windows of n rows.

        windows: (B, n) int64 ids, the newest token and its drafts; None and no `state` without running requests.
        """
        first = len(completing)
        if windows is None:
            windows = positions.new_empty(0, 1)
        self._counts.begin(completing)
        asking = [(request, 1) for request in completing]
        asking += [(each.request, windows.shape[1]) for each in running]
        rows = self._rows.get(asking)
        chosen = choose(logits, positions, self._prefix(rows, first, windows), rows, self._counts)
        predicted = chosen.tokens[first:].view_as(windows)
        accept_lens = self._accept(running, state, windows, predicted)
        self._count(rows, chosen, first, accept_lens, windows.shape[1])
        return Verdict(
            first_tokens=chosen.tokens[:first],
            predicted=predicted,
            accept_lens=accept_lens,
            newest=predicted.gather(1, accept_lens[:, None] - 1)[:, 0],
            logprobs=chosen.logprobs,
            logprob_rows=rows.logprobs,
        )

    def _prefix(self, rows: SamplingRows, first: int, windows: torch.Tensor) -> torch.Tensor:
        """Drafts before each row; only penalties look at them."""
        if rows.penalised is None:
            return windows.new_empty(0, 0)
        none = windows.new_full((first, windows.shape[1] - 1), self._vocab_size)
        return torch.cat((none, draft_prefixes(windows, self._vocab_size)))

    def _accept(
        self, running: Sequence[Running], state: DecodeState | None, windows: torch.Tensor, predicted: torch.Tensor
    ) -> torch.Tensor:
        if self._mean is None or state is None:
            return accept_chain(windows[:, 1:], predicted)
        seeds = upload([signed(each.request.seed) for each in running], self._device)
        return simulated_accept_lens(seeds, state.starts, mean=self._mean)

    def _count(self, rows: SamplingRows, chosen: Chosen, first: int, accept_lens: torch.Tensor, width: int) -> None:
        if rows.penalised is None:
            return
        in_window = torch.arange(width, device=accept_lens.device) < accept_lens[:, None]
        kept = torch.cat((in_window.new_ones(first), in_window.flatten()))
        self._counts.count(rows.penalised, chosen.tokens, kept)
