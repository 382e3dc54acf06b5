"""One request from prompt to last token: what it asked for, how far it is, and why it ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from dsv4_engine.errors import EngineError

MAX_LOGPROBS = 20
# Less sharpens nothing further, and logits that are divided by 1e-310 are infinities. SGLang draws the same line.
_LEAST_TEMPERATURE = 1e-6
_RANGES = (
    ("temperature", 0, 100),
    ("top_k", 0, 1 << 30),
    ("top_p", 0, 1),
    ("min_p", 0, 1),
    ("frequency_penalty", -2, 2),
    ("presence_penalty", -2, 2),
    ("repetition_penalty", 0.01, 10),
)


class FinishReason(str, Enum):
    """STOP: an end token was produced (and kept). LENGTH: max_new_tokens or the context is full. ABORT: withdrawn."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"


@dataclass(frozen=True, kw_only=True)
class SamplingParams:
    """How a request's tokens are chosen; the defaults are greedy.

    temperature: 0, or less than 1e-6, takes the most likely token. top_k: 0 keeps all. top_p, min_p: nucleus, and least
    share of the most likely token's probability. frequency_, presence_penalty: subtracted from the logits of tokens
    produced, a count and once; repetition_penalty: divides (multiplies, where negative) the logits of tokens seen,
    prompt included. seed: equal seeds give equal tokens in any batch; None draws one. logprobs: None for none, else how
    many of the most likely tokens are told beside the chosen one. EngineError on a value out of range.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    repetition_penalty: float = 1.0
    seed: int | None = None
    logprobs: int | None = None

    def __post_init__(self) -> None:
        for name, low, high in _RANGES:
            value = getattr(self, name)
            if not low <= value <= high:  # also refuses NaN
                raise EngineError(f"{name} is {value}", hint=f"choose {low:g} to {high:g}")
        if self.top_p == 0:
            raise EngineError("top_p is 0", hint="choose more than 0; temperature 0 is greedy")
        if self.logprobs is not None and not 0 <= self.logprobs <= MAX_LOGPROBS:
            raise EngineError(f"logprobs is {self.logprobs}", hint=f"choose 0 to {MAX_LOGPROBS}")

    @property
    def greedy(self) -> bool:
        return self.temperature < _LEAST_TEMPERATURE or self.top_k == 1

    @property
    def penalised(self) -> bool:
        return bool(self.frequency_penalty or self.presence_penalty or self.repetition_penalty != 1)


@dataclass(frozen=True, kw_only=True)
class TokenLogprobs:
    """logprob: natural log of the chosen token's probability. top: (token, logprob) of the most likely, best first."""

    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, kw_only=True)
class RequestResult:
    """tokens: output only. accept_lens: tokens gained by each verify, before the output was cut to its limit.

    finish_reason is None while the request still runs. cached_tokens: prompt tokens that the radix cache had.
    logprobs: one for each token, where asked for.
    """

    tokens: tuple[int, ...]
    accept_lens: tuple[int, ...]
    finish_reason: FinishReason | None
    cached_tokens: int = 0
    logprobs: tuple[TokenLogprobs, ...] = ()


@dataclass(kw_only=True, eq=False)
class Request:
    """Mutable state of a request. `max_output` already respects the context length.

    priority: higher ones are admitted first. prefill_len: tokens to prefill, which after a retraction includes output;
    prefilled: how many of them are launched or cached. admitted: whether it ever had a slot. cached_tokens: prompt
    tokens that the radix cache had then. seed: of its own noise, equal in every run of the same engine options.
    """

    id: int
    prompt: tuple[int, ...]
    max_output: int
    stop_ids: frozenset[int]
    sampling: SamplingParams = SamplingParams()
    seed: int = 0
    priority: int = 0
    slot: int | None = None
    prefilled: int = 0
    prefill_len: int = 0
    admitted: bool = False
    cached_tokens: int = 0
    output: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    accept_lens: list[int] = field(default_factory=list)
    finish_reason: FinishReason | None = None

    def __post_init__(self) -> None:
        self.prefill_len = self.prefill_len or len(self.prompt)

    @property
    def tokens(self) -> tuple[int, ...]:
        """Prompt and output."""
        return (*self.prompt, *self.output)

    @property
    def cached_len(self) -> int:
        """Tokens whose keys are in the cache during decode: all but the newest, which the next step will feed."""
        return len(self.prompt) + len(self.output) - 1

    def take(self, tokens: Sequence[int], logprobs: Sequence[TokenLogprobs] = ()) -> tuple[int, ...]:
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
        self.logprobs += logprobs[: len(kept)]
        return tuple(kept)

    def result(self) -> RequestResult:
        return RequestResult(
            tokens=tuple(self.output),
            accept_lens=tuple(self.accept_lens),
            finish_reason=self.finish_reason,
            cached_tokens=self.cached_tokens,
            logprobs=tuple(self.logprobs),
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
