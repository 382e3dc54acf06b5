"""One request from prompt to last token: what it asked for, how far it is, and why it ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum


class FinishReason(str, Enum):
    """STOP: an end token was produced (and kept). LENGTH: max_new_tokens or the context is used up."""

    STOP = "stop"
    LENGTH = "length"


@dataclass(frozen=True, kw_only=True)
class RequestResult:
    """tokens: output only. accept_lens: tokens gained by each verify, before the output was cut to its limit.

    finish_reason is None while the request still runs.
    """

    tokens: tuple[int, ...]
    accept_lens: tuple[int, ...]
    finish_reason: FinishReason | None


@dataclass(kw_only=True, eq=False)
class Request:
    """Mutable state of a request. `max_output` already respects the context length."""

    id: int
    prompt: tuple[int, ...]
    max_output: int
    stop_ids: frozenset[int]
    slot: int | None = None
    prefilled: int = 0
    output: list[int] = field(default_factory=list)
    accept_lens: list[int] = field(default_factory=list)
    finish_reason: FinishReason | None = None

    @property
    def cached_len(self) -> int:
        """Tokens whose keys are in the cache during decode: all but the newest, which the next step will feed."""
        return len(self.prompt) + len(self.output) - 1

    def take(self, tokens: Sequence[int]) -> tuple[int, ...]:
        """Append tokens until a stop token or the limit; returns those kept. What follows them never existed."""
        kept: list[int] = []
        for token in tokens:
            if self.finish_reason is not None:
                break
            kept.append(token)
            self.output.append(token)
            if token in self.stop_ids:
                self.finish_reason = FinishReason.STOP
            elif len(self.output) == self.max_output:
                self.finish_reason = FinishReason.LENGTH
        return tuple(kept)

    def result(self) -> RequestResult:
        return RequestResult(
            tokens=tuple(self.output), accept_lens=tuple(self.accept_lens), finish_reason=self.finish_reason
        )
