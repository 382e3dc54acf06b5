"""What the next step computes: prompts in chunks first, in order of arrival, else one decode of all running requests.

Deciding, doing and committing are three calls, so that a step can be looked at before it runs and its outcome reaches
requests in one place.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from dsv4_engine.plan import Chunk, Running, StepOutcome, StepPlan
from dsv4_engine.request import Request


class Scheduler:
    """Owns the queues and the cache slots."""

    def __init__(self, *, max_requests: int, chunk_tokens: int) -> None:
        self._chunk_tokens = chunk_tokens
        self._free_slots = deque(range(max_requests))
        self._waiting: deque[Request] = deque()
        self._prefilling: list[Request] = []
        self._decoding: list[Request] = []

    @property
    def has_work(self) -> bool:
        return bool(self._waiting or self._prefilling or self._decoding)

    @property
    def num_free_slots(self) -> int:
        return len(self._free_slots)

    def add(self, request: Request) -> None:
        self._waiting.append(request)

    def plan(self) -> StepPlan:
        """The next step's work; waiting requests get a slot here. There must be work."""
        assert self.has_work, "nothing to plan"
        self._admit()
        if chunks := self._next_chunks():
            return StepPlan(chunks=chunks)
        return StepPlan(
            running=tuple(Running(request=request, max_cached=request.cached_len) for request in self._decoding)
        )

    def commit(self, plan: StepPlan, outcome: StepOutcome) -> dict[Request, tuple[int, ...]]:
        """Apply a step's outcome; returns the tokens that each request kept. Finished requests give up their slot."""
        self._advance(plan.chunks)
        for running, accepted in zip(plan.running, outcome.accept_lens, strict=False):
            running.request.accept_lens.append(accepted)
        answered = zip(plan.requests, outcome.tokens, strict=True)
        kept = {request: request.take(tokens) for request, tokens in answered if tokens}
        self._release([request for request in kept if request.finish_reason is not None])
        return kept

    def _admit(self) -> None:
        while self._waiting and self._free_slots:
            request = self._waiting.popleft()
            request.slot = self._free_slots.popleft()
            self._prefilling.append(request)

    def _next_chunks(self) -> tuple[Chunk, ...]:
        budget, chunks = self._chunk_tokens, []
        for request in self._prefilling:
            length = min(budget, request.prefill_len - request.prefilled)
            if length == 0:
                break
            chunks.append(Chunk(request=request, start=request.prefilled, length=length))
            budget -= length
        return tuple(chunks)

    def _advance(self, chunks: Sequence[Chunk]) -> None:
        for chunk in chunks:
            chunk.request.prefilled += chunk.length
            if chunk.completes:
                self._prefilling.remove(chunk.request)
                self._decoding.append(chunk.request)

    def _release(self, finished: Sequence[Request]) -> None:
        for request in finished:
            self._decoding.remove(request)
            assert request.slot is not None
            self._free_slots.append(request.slot)
            request.slot = None
