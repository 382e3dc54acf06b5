"""What every address of the server works with, and how an answer's outputs come out of the engine."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Any, Protocol

from dsv4_engine.server.engine_thread import EngineThread
from dsv4_engine.server.errors import ApiError
from dsv4_engine.server.generation import Asked, ServedModel
from dsv4_engine.server.inbox import Update
from dsv4_engine.server.metrics import Metrics
from dsv4_engine.server.options import ServerOptions
from dsv4_engine.server.output import Delta, OutputStream


class ProfileRoutes(Protocol):
    """A recorder behind `/start_profile`, `/stop_profile` and `/profile_status`; called on a thread that may wait."""

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, dict[str, Any]]:
        """An HTTP status and a JSON object. Never raises because of what a client sent."""
        ...


@dataclass(kw_only=True)
class Service:
    """info: what `/server_info` tells beside the engine's state, such as options, versions and sizes."""

    model: ServedModel
    engine: EngineThread
    options: ServerOptions
    profile: ProfileRoutes | None = None
    info: dict[str, Any] = field(default_factory=dict)
    metrics: Metrics = field(default_factory=Metrics)


@dataclass
class Usage:
    """Tokens of a request, summed over its outputs; of n outputs of one prompt the prompt counts once."""

    prompt_tokens: int
    completion_tokens: int = 0
    cached_tokens: int = 0

    def body(self) -> dict[str, Any]:
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": self.prompt_tokens + self.completion_tokens,
            "prompt_tokens_details": {"cached_tokens": self.cached_tokens},
        }


class Outputs:
    """The outputs of one request, from submission to their ends; whatever is left when it is closed is withdrawn."""

    def __init__(self, service: Service, asked: Asked) -> None:
        """ApiError when the queue is full or the engine is gone."""
        self._service, self._asked = service, asked
        self._began = time.perf_counter()
        self._last = [0.0] * len(asked.generations)
        self._tickets = service.engine.submit(asked.generations)
        self._places = {ticket: index for index, ticket in enumerate(self._tickets)}
        self._streams = [
            OutputStream(
                service.model.tokenizer,
                generation.stops,
                frozenset((*service.model.eos_token_ids, *generation.stop_ids)),
            )
            for generation in asked.generations
        ]
        self._cached = [0] * len(asked.generations)

    @property
    def usage(self) -> Usage:
        """So far. Of several outputs of a prompt, the first one's share of the cache counts."""
        return Usage(
            prompt_tokens=self._asked.prompt_tokens,
            completion_tokens=sum(stream.num_tokens for stream in self._streams),
            cached_tokens=sum(self._cached[:: self._asked.n]),
        )

    async def deltas(self) -> AsyncGenerator[tuple[int, Delta], None]:
        """(output, what is new of it) until all have ended. ApiError when the engine refuses one or fails."""
        left = len(self._tickets)
        try:
            while left:
                ticket, update = await self._tickets[0].updates.get()
                if isinstance(update, ApiError):
                    raise update
                index = self._places[ticket]
                stream = self._streams[index]
                if stream.finished:
                    continue
                delta = self._take(index, update)
                if stream.finished:
                    left -= 1
                    self._service.engine.withdraw(ticket)
                    self._count_end(index, delta.finish_reason or "")
                yield index, delta
        finally:
            self.close()

    def close(self) -> None:
        """Idempotent. What has not ended is aborted."""
        for index, ticket in enumerate(self._tickets):
            if not self._streams[index].finished:
                self._streams[index].finished = True
                self._service.engine.withdraw(ticket)
                self._count_end(index, "abort")

    def _take(self, index: int, update: Update) -> Delta:
        before = self._streams[index].num_tokens
        delta = self._streams[index].push(update.tokens, logprobs=update.logprobs, finish=update.finish)
        self._cached[index] = update.cached_tokens
        if update.tokens:
            self._count_tokens(index, self._streams[index].num_tokens - before, first=before == 0)
        return delta

    def _count_tokens(self, index: int, tokens: int, *, first: bool) -> None:
        now = time.perf_counter()
        latency, metrics = self._service.metrics.latency, self._service.metrics
        if first:
            latency["time_to_first_token_seconds"].observe(now - self._began)
        else:
            latency["inter_token_latency_seconds"].observe((now - self._last[index]) / tokens, tokens)
        self._last[index] = now
        metrics.tokens["generation_tokens"] += tokens

    def _count_end(self, index: int, reason: str) -> None:
        metrics = self._service.metrics
        metrics.requests[reason] += 1
        metrics.latency["e2e_request_latency_seconds"].observe(time.perf_counter() - self._began)
        if index % self._asked.n == 0:
            metrics.tokens["prompt_tokens"] += len(self._asked.generations[index].prompt)
            metrics.tokens["cached_tokens"] += self._cached[index]
