"""The fields of requests, by what a server does with them: obey, refuse with a sentence, or let be.

A field that nobody knows is refused, with the name that was probably meant: OpenAI does so, and a mistyped `max_token`
that changed nothing would be a wrong answer. A field that this server cannot obey is refused unless its value is the
one that asks for nothing.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

_Int = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
_Name = Annotated[str, msgspec.Meta(max_length=512)]


class StreamOptions(msgspec.Struct, forbid_unknown_fields=True):
    """continuous_usage_stats: usage with every chunk (vLLM). include_obfuscation is accepted; nothing is padded."""

    include_usage: bool = False
    continuous_usage_stats: bool = False
    include_obfuscation: bool = False


class SamplingFields(msgspec.Struct, kw_only=True):
    """What both endpoints take, with OpenAI's defaults. Fields that are not OpenAI's are SGLang's and vLLM's."""

    model: _Name | None = None
    n: Annotated[int, msgspec.Meta(ge=1, le=128)] = 1
    max_tokens: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)] | None = None
    temperature: Annotated[float, msgspec.Meta(ge=0, le=100)] = 1.0
    top_p: Annotated[float, msgspec.Meta(gt=0, le=1)] = 1.0
    top_k: Annotated[int, msgspec.Meta(ge=-1, le=2**30)] = -1
    min_p: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.0
    frequency_penalty: Annotated[float, msgspec.Meta(ge=-2, le=2)] = 0.0
    presence_penalty: Annotated[float, msgspec.Meta(ge=-2, le=2)] = 0.0
    repetition_penalty: Annotated[float, msgspec.Meta(gt=0, le=10)] = 1.0
    seed: _Int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]] | None = None
    ignore_eos: bool = False
    priority: Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)] = 0
    stream: bool = False
    stream_options: StreamOptions | None = None


class CompletionFields(SamplingFields, kw_only=True):
    """`/v1/completions`. logprobs: how many of the most likely tokens to tell beside the chosen one."""

    prompt: str | list[Any]
    echo: bool = False
    logprobs: Annotated[int, msgspec.Meta(ge=0, le=20)] | None = None


class ChatFields(SamplingFields, kw_only=True):
    """`/v1/chat/completions`. reasoning_effort: none and minimal answer at once, max asks for more than the others."""

    messages: list[dict[str, Any]]
    max_completion_tokens: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)] | None = None
    logprobs: bool = False
    top_logprobs: Annotated[int, msgspec.Meta(ge=0, le=20)] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    reasoning_effort: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    separate_reasoning: bool = True


INERT = frozenset(
    ("user", "metadata", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention",
     "verbosity", "stream_reasoning", "request_id", "rid")
)  # fmt: skip
"""Fields that say nothing about the answer: who asks, what it is for, how to bill or log it."""

ONLY: dict[str, tuple[tuple[Any, ...], str]] = {
    "suffix": ((None, ""), "text cannot be filled in before a suffix"),
    "best_of": ((None, 1), "outputs are not ranked; ask for them with n"),
    "logit_bias": ((None, {}), "tokens' scores cannot be shifted"),
    "min_tokens": ((None, 0), "an output has no least length; ignore_eos keeps it going to max_tokens"),
    "response_format": ((None, {"type": "text"}), "output is not constrained to a form"),
    "functions": ((None, []), "functions are given as tools"),
    "function_call": ((None, "auto", "none"), "functions are given as tools, with tool_choice"),
    "parallel_tool_calls": ((None, True), "the number of calls in an answer cannot be limited"),
    "audio": ((None,), "the model writes text only"),
    "modalities": ((None, ["text"]), "the model writes text only"),
    "prediction": ((None,), "predicted outputs are not used"),
    "store": ((None, False), "answers are not stored"),
    "web_search_options": ((None,), "the server does not search"),
    "skip_special_tokens": ((None, True), "special tokens are never part of a text"),
    "spaces_between_special_tokens": ((None, True, False), ""),
    "no_stop_trim": ((None, False), "a stop string is never part of a text"),
    "include_stop_str_in_output": ((None, False), "a stop string is never part of a text"),
    "add_generation_prompt": ((None, True), "a prompt always ends where the answer begins"),
    "continue_final_message": ((None, False), "an answer always begins a new turn"),
    "use_beam_search": ((None, False), "there is no beam search"),
    "truncate_prompt_tokens": ((None,), "a prompt is never cut"),
    "regex": ((None,), "output is not constrained to a form"),
    "json_schema": ((None,), "output is not constrained to a form"),
    "ebnf": ((None,), "output is not constrained to a form"),
    "lora_path": ((None,), "there are no adapters"),
}
"""Fields that can only be obeyed at these values, and why."""

NAMES: dict[type[SamplingFields], frozenset[str]] = {
    kind: frozenset(field.encode_name for field in msgspec.structs.fields(kind))
    for kind in (CompletionFields, ChatFields)
}
