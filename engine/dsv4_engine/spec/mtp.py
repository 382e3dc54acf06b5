"""Speculative decoding with the model's own MTP layer: draft, verify, accept, draft-extend in every step.

The output is the target model's greedy output, token for token, however good or bad the drafts are.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from dsv4_engine.batching import DecodeInputs
from dsv4_engine.execution import Answered, Execution, PendingStep, prefill_outcome
from dsv4_engine.phase import Phase
from dsv4_engine.plan import Chunk, StepOutcome, StepPlan
from dsv4_engine.request import Request
from dsv4_engine.sampling import greedy
from dsv4_engine.spec.draft import draft_chain
from dsv4_engine.spec.draft_extend import draft_extend
from dsv4_engine.spec.relay import Relay
from dsv4_engine.spec.verify import verify_chain


class MtpDecoding:
    """Greedy decoding with a chain of `num_drafts` drafts a step."""

    def __init__(self, execution: Execution, relay: Relay, *, num_drafts: int) -> None:
        assert num_drafts >= 1, num_drafts
        self._execution = execution
        self._relay = relay
        self._num_drafts = num_drafts

    @property
    def rows_per_request(self) -> int:
        return self._num_drafts + 1

    def launch(self, plan: StepPlan) -> PendingStep:
        """Queue the step's work."""
        return Answered(self._prefill(plan.chunks) if plan.chunks else self._decode(plan.requests))

    def _prefill(self, chunks: tuple[Chunk, ...]) -> StepOutcome:
        """Compute the chunks in target and MTP layer; prompts that end get their first token and first draft.

        An MTP row combines a position's target streams with the token after it: the prompt's next one, or, at the end
        of the prompt, the token just chosen.
        """
        run = self._execution
        inputs = run.prefill_inputs(chunks)
        with run.phase(Phase.PREFILL, requests=len(chunks), rows=inputs.batch.num_tokens):
            output = run.model.forward_target(inputs.batch, logits_rows=inputs.last_rows)
            first = greedy(output.logits)
            shifted = replace(inputs.batch, input_ids=inputs.next_ids.index_copy(0, inputs.last_rows, first))
            with run.hooks.span("mtp_prefill"):
                guess = run.model.forward_mtp(shifted, output.streams, logits_rows=inputs.last_rows)
            self._relay.store(inputs.last_slots, greedy(guess.logits), guess.streams[inputs.last_rows])
        return prefill_outcome(chunks, run.read(first[:, None]))

    def _decode(self, requests: tuple[Request, ...]) -> StepOutcome:
        """One to num_drafts + 1 more tokens for each request."""
        run, count = self._execution, len(requests)
        inputs = DecodeInputs.of(requests, run.device)
        drafts = self._draft(inputs, count)
        rows = count * self.rows_per_request
        with run.phase(Phase.TARGET_VERIFY, requests=count, rows=rows):
            verdict = verify_chain(run.model, inputs, drafts)
        with run.phase(Phase.DRAFT_EXTEND, requests=count, rows=rows):
            self._relay.store(inputs.slots, *draft_extend(run.model, inputs, verdict))
        read = run.read(torch.cat((verdict.accept_lens[:, None], verdict.predicted), dim=1))
        accept_lens = tuple(accepted for accepted, *_ in read)
        run.hooks.accepted(requests=count, tokens=sum(accept_lens))
        return StepOutcome(
            tokens=tuple(tuple(predicted[:accepted]) for accepted, *predicted in read), accept_lens=accept_lens
        )

    def _draft(self, inputs: DecodeInputs, count: int) -> torch.Tensor:
        first, streams = self._relay.first_draft[inputs.slots], self._relay.streams[inputs.slots]
        if self._num_drafts == 1:
            return first[:, None]
        with self._execution.phase(Phase.DRAFT, requests=count, rows=count * (self._num_drafts - 1)):
            return draft_chain(self._execution.model, inputs, first, streams, num_drafts=self._num_drafts)
