"""The way of a step's tokens to the host: one asynchronous copy, and one wait when somebody asks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from dsv4_engine.hooks import StepHooks
from dsv4_engine.plan import Chunk, StepOutcome
from dsv4_engine.sampling.logprobs import HostLogprobs, LogprobValues
from dsv4_engine.sampling.rows import LogprobRows


class PendingStep(Protocol):
    """A step whose work is queued on the device; `read` waits for its tokens, once."""

    def read(self) -> StepOutcome: ...


@dataclass(frozen=True)
class Answered:
    """A step without tokens: nothing to wait for."""

    outcome: StepOutcome

    def read(self) -> StepOutcome:
        return self.outcome


class HostCopy:
    """Device tensors on their way to pinned memory. Both ends live until the copy is read."""

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        self._sources = tensors
        self._copies: list[torch.Tensor] = []
        self._event: torch.cuda.Event | None = None
        for tensor in tensors:
            if tensor.device.type == "cpu":
                self._copies.append(tensor)
                continue
            pinned = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
            self._copies.append(pinned.copy_(tensor, non_blocking=True))
        if tensors and tensors[0].device.type != "cpu":
            self._event = torch.cuda.Event()
            self._event.record()

    def wait(self) -> list[Any]:
        """The values as nested lists, after the copies are done."""
        if self._event is not None:
            # dsv4prof: allow[DSV106] the one wait of a step: its tokens decide what is scheduled next
            self._event.synchronize()
        # dsv4prof: allow[DSV102] host memory, and the event of its copy is done
        return [copy.tolist() for copy in self._copies]


class ReadbackStep:
    """Tokens of a launched step: first tokens of C completed prompts, then B accept lengths, then B * n tokens.

    in_flight: tensors that queued work still uses; they are let go when the step has been read.
    """

    def __init__(
        self,
        *,
        chunks: tuple[Chunk, ...],
        first_tokens: torch.Tensor,
        accept_lens: torch.Tensor,
        predicted: torch.Tensor,
        logprobs: LogprobValues | None,
        logprob_rows: LogprobRows | None,
        speculative: bool,
        hooks: StepHooks,
        in_flight: Sequence[object],
    ) -> None:
        self._chunks, self._speculative, self._hooks = chunks, speculative, hooks
        self._running, self._width = predicted.shape
        self._logprob_rows, self._in_flight = logprob_rows, list(in_flight)
        packed = torch.cat((first_tokens, accept_lens, predicted.flatten()))
        values = () if logprobs is None else (logprobs.chosen, logprobs.top, logprobs.ids)
        self._copy = HostCopy((packed, *values))

    def read(self) -> StepOutcome:
        with self._hooks.span("read_tokens"):
            packed, *values = self._copy.wait()
        self._in_flight.clear()
        completed = sum(chunk.completes for chunk in self._chunks)
        accept_lens = packed[completed : completed + self._running]
        rows = packed[completed + self._running :]
        first = iter(packed[:completed])
        tokens = [(next(first),) if chunk.completes else () for chunk in self._chunks]
        for index, accepted in enumerate(accept_lens):
            start = index * self._width
            tokens.append(tuple(rows[start : start + accepted]))
        if self._speculative and accept_lens:
            self._hooks.accepted(requests=self._running, tokens=sum(accept_lens))
        return StepOutcome(
            tokens=tuple(tokens),
            accept_lens=tuple(accept_lens) if self._speculative else (),
            logprobs=self._logprobs(tokens, values),
        )

    def _logprobs(self, tokens: Sequence[tuple[int, ...]], values: Sequence[Any]) -> tuple[Any, ...]:
        """Only requests with rows were asked about: completed prompts and running ones, in order."""
        if self._logprob_rows is None:
            return ()
        host = HostLogprobs(chosen=values[0], top=values[1], ids=values[2])
        wanted = iter(self._logprob_rows.wanted)
        asked = [chunk.completes for chunk in self._chunks] + [True] * self._running
        return tuple(
            host.of(next(wanted), len(kept)) if has_rows else () for has_rows, kept in zip(asked, tokens, strict=True)
        )
