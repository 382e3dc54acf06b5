"""One request from prompt to last token: what it asked for, how far it is, and why it ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from dsv4_engine.errors import EngineError


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


def require_servable(prompt: Sequence[int], *, max_new_tokens: int, context_len: int, vocab_size: int) -> None:
    """EngineError on a prompt that could never run: a launcher asks before any rank waits for the others.

    Refused are empty prompts, those that leave no room for output in `context_len` tokens, ids outside the
    vocabulary, and a wish for no output.
    """
    if not prompt:
        raise EngineError("the prompt is empty", hint="give at least one token")
    if max_new_tokens < 1:
        raise EngineError(f"max_new_tokens is {max_new_tokens}", hint="ask for at least 1")
    if len(prompt) >= context_len:
        raise EngineError(
            f"the prompt has {len(prompt)} tokens, and a context of {context_len} holds it and its output",
            hint=f"shorten it to {context_len - 1} tokens or raise context_len",
        )
    outside = next((token for token in prompt if not 0 <= token < vocab_size), None)
    if outside is not None:
        raise EngineError(
            f"token id {outside} lies outside the vocabulary of {vocab_size}",
            hint="was the prompt encoded with another model's tokenizer?",
        )
