"""What the next step computes: prompts in chunks first, in order of arrival, else one decode of all running requests.

Deciding, doing and committing are three calls, so that a step can be looked at before it runs and its outcome reaches
requests in one place.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from dsv4_engine.request import Request


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """Prompt tokens `start` to `start + length` of a request."""

    request: Request
    start: int
    length: int

    @property
    def completes(self) -> bool:
        """Whether the prompt ends with this chunk, so that its last row yields the first output token."""
        return self.start + self.length == len(self.request.prompt)


@dataclass(frozen=True, kw_only=True)
class PrefillPlan:
    chunks: tuple[Chunk, ...]


@dataclass(frozen=True, kw_only=True)
class DecodePlan:
    requests: tuple[Request, ...]


@dataclass(frozen=True, kw_only=True)
class StepOutcome:
    """Tokens for each request of the plan, in its order; empty where a prompt is not complete yet.

    accept_lens: one for each request of a verify, else empty.
    """

    tokens: tuple[tuple[int, ...], ...]
    accept_lens: tuple[int, ...] = ()


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

    def plan(self) -> PrefillPlan | DecodePlan:
        """The next step's work; waiting requests get a slot here. There must be work."""
        assert self.has_work, "nothing to plan"
        self._admit()
        chunks = self._next_chunks()
        return PrefillPlan(chunks=chunks) if chunks else DecodePlan(requests=tuple(self._decoding))

    def commit(self, plan: PrefillPlan | DecodePlan, outcome: StepOutcome) -> dict[Request, tuple[int, ...]]:
        """Apply a step's outcome; returns the tokens that each request kept. Finished requests give up their slot."""
        if isinstance(plan, PrefillPlan):
            requests: Sequence[Request] = [chunk.request for chunk in plan.chunks]
            self._advance(plan.chunks)
        else:
            requests = plan.requests
        for request, accepted in zip(requests, outcome.accept_lens, strict=False):
            request.accept_lens.append(accepted)
        answered = zip(requests, outcome.tokens, strict=True)
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
            length = min(budget, len(request.prompt) - request.prefilled)
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
