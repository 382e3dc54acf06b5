"""Decoding without speculation: one row a request and step."""

from __future__ import annotations

from dsv4_engine.batching import DecodeInputs
from dsv4_engine.execution import Answered, Execution, PendingStep, prefill_outcome
from dsv4_engine.phase import Phase
from dsv4_engine.plan import Chunk, StepOutcome, StepPlan
from dsv4_engine.request import Request
from dsv4_engine.sampling import greedy


class PlainDecoding:
    """Greedy decoding with the target model alone."""

    rows_per_request = 1

    def __init__(self, execution: Execution) -> None:
        self._execution = execution

    def launch(self, plan: StepPlan) -> PendingStep:
        """Queue the step's work."""
        return Answered(self._prefill(plan.chunks) if plan.chunks else self._decode(plan.requests))

    def _prefill(self, chunks: tuple[Chunk, ...]) -> StepOutcome:
        """Compute the chunks; prompts that end get their first token."""
        run = self._execution
        inputs = run.prefill_inputs(chunks)
        with run.phase(Phase.PREFILL, requests=len(chunks), rows=inputs.batch.num_tokens):
            output = run.model.forward_target(inputs.batch, logits_rows=inputs.last_rows)
            first = greedy(output.logits)
        return prefill_outcome(chunks, run.read(first[:, None]))

    def _decode(self, requests: tuple[Request, ...]) -> StepOutcome:
        """One more token for each request."""
        run = self._execution
        inputs = DecodeInputs.of(requests, run.device)
        batch = inputs.window(Phase.DECODE, inputs.newest[:, None])
        with run.phase(Phase.DECODE, requests=len(requests), rows=len(requests)):
            tokens = greedy(run.model.forward_target(batch, logits_rows=None).logits)
        return StepOutcome(tokens=tuple(map(tuple, run.read(tokens[:, None]))))
