"""What a decoding strategy needs: the model's two forwards, announced phases, and the one read of a step's tokens."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

import torch

from dsv4_engine.batch import ForwardBatch
from dsv4_engine.batching import PrefillInputs, prefill_inputs
from dsv4_engine.graphs.gate import BatchShape, graph_decision
from dsv4_engine.hooks import StepHooks
from dsv4_engine.phase import Phase
from dsv4_engine.plan import Chunk, StepOutcome, StepPlan


class ForwardOutput(Protocol):
    """logits: (R, V) fp32 of the rows asked for. streams: (T, hc, D) before the head's mix."""

    @property
    def logits(self) -> torch.Tensor: ...

    @property
    def streams(self) -> torch.Tensor: ...


class Model(Protocol):
    """The forwards of `runner.ModelRunner`; `logits_rows` None asks for every row."""

    def forward_target(self, batch: ForwardBatch, *, logits_rows: torch.Tensor | None) -> ForwardOutput: ...

    def forward_mtp(
        self, batch: ForwardBatch, streams: torch.Tensor, *, logits_rows: torch.Tensor | None
    ) -> ForwardOutput: ...


class PendingStep(Protocol):
    """A step whose work is queued on the device; `read` waits for its tokens, once."""

    def read(self) -> StepOutcome: ...


@dataclass(frozen=True)
class Answered:
    """A step that has been read already."""

    outcome: StepOutcome

    def read(self) -> StepOutcome:
        return self.outcome


class Strategy(Protocol):
    """How prompts and running requests are computed; `rows_per_request` of a decode step's target forward."""

    @property
    def rows_per_request(self) -> int: ...

    def launch(self, plan: StepPlan) -> PendingStep: ...


@dataclass(frozen=True, kw_only=True)
class Execution:
    """The model with its surroundings: device, watcher, and the inputs of the graph gate."""

    model: Model
    device: torch.device
    hooks: StepHooks
    backend: str
    environment: Mapping[str, str]

    def phase(self, phase: Phase, *, requests: int, rows: int) -> AbstractContextManager[object]:
        """Announce a phase with the graph gate's decision for it."""
        decision = graph_decision(phase, self.backend, self.environment, BatchShape(requests=requests, rows=rows))
        return self.hooks.phase(phase, requests=requests, rows=rows, captured=decision.captured, reason=decision.reason)

    def read(self, values: torch.Tensor) -> list[list[int]]:
        """(B, n) int64 to the host: the one wait that a step is meant to have, so it has its own span."""
        if values.numel() == 0:
            return []
        with self.hooks.span("read_tokens"):
            # dsv4prof: allow[DSV102] the one read of a step: its tokens decide what is scheduled next
            return values.tolist()

    def prefill_inputs(self, chunks: tuple[Chunk, ...]) -> PrefillInputs:
        return prefill_inputs(chunks, self.device)


def prefill_outcome(chunks: tuple[Chunk, ...], first_tokens: list[list[int]]) -> StepOutcome:
    """First output tokens, one for each chunk that completes its prompt, put back in the order of the chunks."""
    remaining = iter(first_tokens)
    return StepOutcome(tokens=tuple(tuple(next(remaining)) if chunk.completes else () for chunk in chunks))
