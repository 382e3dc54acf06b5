"""What a request asks of the engine, out of its fields: prompts as token ids, sampling, and where output ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from dsv4_engine.errors import EngineError
from dsv4_engine.request import SamplingParams, require_servable
from dsv4_engine.server.decoding import shown
from dsv4_engine.server.errors import ApiError
from dsv4_engine.server.fields import CompletionFields, SamplingFields
from dsv4_engine.tokenizer import Tokenizer

MOST_STOPS = 16
MOST_PROMPTS = 1024
_MOST_OUTPUTS = 4096
_LONGEST_STOP = 1024
_DEFAULT_COMPLETION_TOKENS = 16
_MOST_SEED = 2**63


@dataclass(frozen=True, kw_only=True)
class ServedModel:
    """What requests are measured against. names: by which a client may call it, the first is told to clients."""

    names: tuple[str, ...]
    tokenizer: Tokenizer
    context_len: int
    vocab_size: int
    eos_token_ids: tuple[int, ...]
    created: int = 0

    @property
    def name(self) -> str:
        return self.names[0]


@dataclass(frozen=True, kw_only=True)
class Generation:
    """One output to make. stop_ids: further tokens that end it, beside the model's end tokens unless ignored."""

    prompt: tuple[int, ...]
    max_new_tokens: int
    sampling: SamplingParams
    ignore_eos: bool = False
    stop_ids: tuple[int, ...] = ()
    stops: tuple[str, ...] = ()
    priority: int = 0


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The outputs of a request, prompt by prompt, n of each, and how to answer."""

    generations: tuple[Generation, ...]
    n: int
    stream: bool
    include_usage: bool
    continuous_usage: bool

    @property
    def num_prompts(self) -> int:
        return len(self.generations) // self.n

    @property
    def prompt_tokens(self) -> int:
        """Of every prompt once, however many outputs it has."""
        return sum(len(generation.prompt) for generation in self.generations[:: self.n])


def require_model(model: ServedModel, asked: str | None) -> None:
    """ApiError (404) on another model's name; no name means the one that there is."""
    if asked is not None and asked not in model.names:
        raise ApiError(
            f"model {shown(asked)} is not served here, only {model.name!r}",
            status=404,
            param="model",
            code="model_not_found",
        )


def ask(
    model: ServedModel,
    fields: SamplingFields,
    prompts: Sequence[Sequence[int]],
    *,
    max_tokens: int | None,
    logprobs: int | None,
    stop_markers: Sequence[str] = (),
) -> Asked:
    """ApiError (400) on whatever the engine would refuse. max_tokens None: up to the end of the context."""
    stops = (*_stops(fields.stop), *stop_markers)
    limit = model.context_len if max_tokens is None else max_tokens
    stop_ids = tuple(dict.fromkeys(fields.stop_token_ids or ()))
    for token in stop_ids:
        if token >= model.vocab_size:
            raise ApiError(
                f"stop_token_ids: {token} lies outside the vocabulary of {model.vocab_size}", param="stop_token_ids"
            )
    if len(prompts) * fields.n > _MOST_OUTPUTS:
        raise ApiError(f"{len(prompts)} prompts times n are more than {_MOST_OUTPUTS} outputs", param="n")
    sampling = _sampling(fields, logprobs)
    generations = []
    for prompt in prompts:
        try:
            require_servable(prompt, max_new_tokens=limit, context_len=model.context_len, vocab_size=model.vocab_size)
        except EngineError as error:
            raise _refused(error, prompt, model.context_len) from None
        generations += [
            Generation(
                prompt=tuple(prompt),
                max_new_tokens=limit,
                sampling=_choice_sampling(sampling, index),
                ignore_eos=fields.ignore_eos,
                stop_ids=stop_ids,
                stops=stops,
                priority=fields.priority,
            )
            for index in range(fields.n)
        ]
    options = fields.stream_options
    if options is not None and not fields.stream:
        raise ApiError("stream_options are for stream: true", param="stream_options")
    return Asked(
        generations=tuple(generations),
        n=fields.n,
        stream=fields.stream,
        include_usage=options is not None and options.include_usage,
        continuous_usage=options is not None and options.continuous_usage_stats,
    )


def completion_prompts(fields: CompletionFields, tokenizer: Tokenizer) -> list[list[int]]:
    """A text, token ids, or a list of either, as token ids. Ids are taken as they are, without a begin token."""
    given: Any = fields.prompt
    if isinstance(given, str):
        return [tokenizer.encode(given)]
    if not given:
        raise ApiError("prompt is empty", param="prompt")
    if all(_is_token(item) for item in given):
        return [list(given)]
    if len(given) > MOST_PROMPTS:
        raise ApiError(f"prompt holds {len(given)} prompts, and {MOST_PROMPTS} are the most", param="prompt")
    if all(isinstance(item, str) for item in given):
        return [tokenizer.encode(text) for text in given]
    if all(isinstance(item, list) and item and all(map(_is_token, item)) for item in given):
        return [list(item) for item in given]
    raise ApiError(
        "prompt has to be a string, a list of token ids, or a list of either, none of them empty", param="prompt"
    )


def completion_max_tokens(fields: CompletionFields) -> int:
    """OpenAI's default for completions is 16."""
    return _DEFAULT_COMPLETION_TOKENS if fields.max_tokens is None else fields.max_tokens


def _is_token(item: object) -> bool:
    return isinstance(item, int) and not isinstance(item, bool)


def _stops(given: str | list[str] | None) -> tuple[str, ...]:
    stops = tuple(dict.fromkeys([given] if isinstance(given, str) else given or ()))
    if len(stops) > MOST_STOPS:
        raise ApiError(f"stop holds {len(stops)} strings, and {MOST_STOPS} are the most", param="stop")
    if any(not stop or len(stop) > _LONGEST_STOP for stop in stops):
        raise ApiError(f"stop: each string has to have 1 to {_LONGEST_STOP} characters", param="stop")
    return stops


def _sampling(fields: SamplingFields, logprobs: int | None) -> SamplingParams:
    try:
        return SamplingParams(
            temperature=fields.temperature,
            top_k=max(0, fields.top_k),
            top_p=fields.top_p,
            min_p=fields.min_p,
            frequency_penalty=fields.frequency_penalty,
            presence_penalty=fields.presence_penalty,
            repetition_penalty=fields.repetition_penalty,
            seed=fields.seed,
            logprobs=logprobs,
        )
    except EngineError as error:
        raise ApiError(f"{error.message}: {error.hint}" if error.hint else error.message) from None


def _choice_sampling(sampling: SamplingParams, index: int) -> SamplingParams:
    """Equal seeds would make n equal outputs: each has its own, the first the one that was given."""
    if index == 0 or sampling.seed is None:
        return sampling
    return replace(sampling, seed=(sampling.seed + index) % _MOST_SEED)


def _refused(error: EngineError, prompt: Sequence[int], context_len: int) -> ApiError:
    too_long = len(prompt) >= context_len
    hint = f" ({error.hint})" if error.hint and not too_long else ""
    code = "context_length_exceeded" if too_long else "invalid_value"
    return ApiError(f"{error.message}{hint}", param="prompt", code=code)
