"""The seams through which somebody outside can watch the engine; without a watcher they cost nothing.

The engine announces what it does and never asks who listens.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from dsv4_engine.phase import Phase


class StepHooks(Protocol):
    """Told of every step, phase and named span. Context managers are entered on the thread that does the work."""

    def step(self, index: int, *, kind: str, requests: int, rows: int) -> AbstractContextManager[object]:
        """One engine step: `kind` is prefill or decode, `rows` the query rows of its target forward."""
        ...

    def phase(
        self, phase: Phase, *, requests: int, rows: int, captured: bool, reason: str
    ) -> AbstractContextManager[object]:
        """One phase of a step, with the graph gate's decision and its reason."""
        ...

    def span(self, name: str) -> AbstractContextManager[object]:
        """A named part of a phase, for example `attach_prefill_meta`."""
        ...

    def accepted(self, *, requests: int, tokens: int) -> None:
        """After a verify: `tokens` output tokens for `requests` requests, bonus tokens included."""
        ...


class NullHooks:
    """Nobody watches."""

    def step(self, index: int, *, kind: str, requests: int, rows: int) -> AbstractContextManager[object]:
        return nullcontext()

    def phase(
        self, phase: Phase, *, requests: int, rows: int, captured: bool, reason: str
    ) -> AbstractContextManager[object]:
        return nullcontext()

    def span(self, name: str) -> AbstractContextManager[object]:
        return nullcontext()

    def accepted(self, *, requests: int, tokens: int) -> None:
        return None
