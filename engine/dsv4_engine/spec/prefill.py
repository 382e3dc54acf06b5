"""A step with prompts in it: chunks, and in a mixed step the windows of running requests behind them."""

from __future__ import annotations

from dataclasses import replace

import torch

from dsv4_engine.batching import ChunkRows, DecodeState, chunk_rows, joined, padding_row
from dsv4_engine.hooks import StepHooks
from dsv4_engine.phase import Phase
from dsv4_engine.plan import StepPlan
from dsv4_engine.spec.judge import Judge, Verdict
from dsv4_engine.spec.programs import ModelHolder
from dsv4_engine.spec.relay import Relay


class PrefillPass:
    """One target forward and, with drafts, one MTP forward over all rows of the step."""

    def __init__(
        self, holder: ModelHolder, relay: Relay, judge: Judge, *, hooks: StepHooks, device: torch.device
    ) -> None:
        self._holder, self._relay, self._judge = holder, relay, judge
        self._hooks, self._device = hooks, device

    def __call__(
        self, plan: StepPlan, state: DecodeState | None, windows: torch.Tensor | None, *, guesses: bool
    ) -> Verdict:
        """The verdict is empty where no prompt ends and nothing runs.

        guesses: run the MTP layer too. Its rows combine a position's target streams with the token after it: the
        prompt's next one, the token just chosen at the end of a prompt, and the target's token in a window.
        """
        model = self._holder.model
        chunks = chunk_rows(plan.chunks, plan.tail_saves, self._device) if plan.chunks else padding_row(self._device)
        batch = chunks.batch
        if plan.peers is not None:
            batch = replace(batch, peer_rows=max(plan.peers.chunk_rows, 1))
        if state is not None and windows is not None:
            batch = joined(batch, state.window(Phase.PREFILL, windows))
        window_rows = torch.arange(chunks.batch.num_tokens, batch.num_tokens, device=self._device)
        asked = torch.cat((chunks.last_rows, window_rows))
        output = model.target(model.prepare(batch, compress=True), asked)
        verdict = self._judge(
            output.logits,
            batch.positions[asked],
            completing=chunks.completing,
            running=plan.running,
            state=state,
            windows=windows,
        )
        slots = self._advance(chunks, state, verdict)
        if guesses:
            with self._hooks.span("mtp_prefill"):
                ids = chunks.next_ids.index_copy(0, chunks.last_rows, verdict.first_tokens)
                shifted = replace(batch, input_ids=torch.cat((ids, verdict.predicted.flatten())))
                rows = torch.cat((chunks.last_rows, _last_accepted(verdict, chunks.batch.num_tokens)))
                guess = model.mtp(model.prepare(shifted, compress=False), output.streams, rows)
            self._relay.guess(slots, guess.logits.argmax(-1), guess.streams[rows])
        return verdict

    def _advance(self, chunks: ChunkRows, state: DecodeState | None, verdict: Verdict) -> torch.Tensor:
        """Publish lengths and newest tokens; returns the slots that they belong to."""
        if state is None:
            self._relay.advance(chunks.slots, chunks.ends, verdict.first_tokens)
            return chunks.slots
        slots = torch.cat((chunks.slots, state.slots))
        seq_lens = torch.cat((chunks.ends, state.starts + verdict.accept_lens))
        self._relay.advance(slots, seq_lens, torch.cat((verdict.first_tokens, verdict.newest)))
        return slots


def _last_accepted(verdict: Verdict, first_row: int) -> torch.Tensor:
    """(B,) row of the step in which each running request's last accepted token was fed."""
    requests, width = verdict.predicted.shape
    starts = torch.arange(requests, device=verdict.predicted.device) * width + first_row
    return starts + verdict.accept_lens - 1
