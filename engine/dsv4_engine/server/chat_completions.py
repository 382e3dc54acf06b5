"""`POST /v1/chat/completions`: the next turn of a conversation, with its reasoning and tool calls apart."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from dsv4_engine.chat.dsml import to_json
from dsv4_engine.chat.messages import ToolCall
from dsv4_engine.chat.parse import AnswerParser, Parsed
from dsv4_engine.server.answers import respond
from dsv4_engine.server.conversation import conversation, thinks, tools_of
from dsv4_engine.server.decoding import decode_fields
from dsv4_engine.server.errors import ApiError
from dsv4_engine.server.fields import ChatFields
from dsv4_engine.server.generation import Asked, ask, require_model
from dsv4_engine.server.http import DONE, event, off_loop, read_body
from dsv4_engine.server.logprobs import chat_logprobs
from dsv4_engine.server.output import Delta, OutputToken
from dsv4_engine.server.service import Outputs, Service, Usage


async def chat_completions(service: Service, request: Request) -> Response:
    """ApiError on whatever is wrong with the request, before anything is computed."""
    body = await read_body(request, most=service.options.max_body_bytes)
    chat = await off_loop(lambda: _prepare(service, body), size=len(body))
    return await respond(service, request, chat.asked, _Answer(service, chat))


@dataclass(frozen=True, kw_only=True)
class _Chat:
    """thinking: answers begin inside the reasoning. parse_tools: blocks of calls are calls."""

    fields: ChatFields
    asked: Asked
    thinking: bool
    parse_tools: bool

    def parser(self) -> AnswerParser:
        return AnswerParser(thinking=self.thinking and self.fields.separate_reasoning, tools=self.parse_tools)


def _prepare(service: Service, body: bytes) -> _Chat:
    fields = decode_fields(body, ChatFields)
    require_model(service.model, fields.model)
    if fields.top_logprobs is not None and not fields.logprobs:
        raise ApiError("top_logprobs needs logprobs: true", param="top_logprobs")
    if None not in (fields.max_tokens, fields.max_completion_tokens) and (
        fields.max_tokens != fields.max_completion_tokens
    ):
        raise ApiError("max_tokens and max_completion_tokens are the same thing with two values", param="max_tokens")
    thinking, tools = thinks(fields), tools_of(fields)
    parts = conversation(fields, thinking=thinking, tools=tools)
    asked = ask(
        service.model,
        fields,
        [service.model.tokenizer.encode_parts(parts)],
        max_tokens=fields.max_completion_tokens or fields.max_tokens,
        logprobs=(fields.top_logprobs or 0) if fields.logprobs else None,
    )
    return _Chat(fields=fields, asked=asked, thinking=thinking, parse_tools=bool(tools))


@dataclass
class _Choice:
    """One answer while it grows. calls counts those that were told."""

    parser: AnswerParser
    reasoning: str = ""
    content: str = ""
    calls: list[dict[str, Any]] = field(default_factory=list)
    tokens: list[OutputToken] = field(default_factory=list)
    end: Delta = field(default_factory=Delta)

    def take(self, delta: Delta) -> tuple[Parsed, list[dict[str, Any]]]:
        """What is new: parsed, and its calls in OpenAI's form."""
        parsed = self.parser.push(delta.text, last=delta.finish_reason is not None)
        new = [_call(call, len(self.calls) + place) for place, call in enumerate(parsed.calls)]
        self.reasoning += parsed.reasoning
        self.content += parsed.content
        self.calls += new
        self.end = delta
        return parsed, new

    @property
    def finish_reason(self) -> str | None:
        return "tool_calls" if self.calls and self.end.finish_reason == "stop" else self.end.finish_reason


def _call(call: ToolCall, index: int) -> dict[str, Any]:
    return {
        "index": index,
        "id": f"call_{uuid.uuid4().hex[:24]}",
        "type": "function",
        "function": {"name": call.name, "arguments": to_json(call.arguments)},
    }


class _Answer:
    """One request's answer, whole or as a stream of chunks."""

    def __init__(self, service: Service, chat: _Chat) -> None:
        self._model, self._chat = service.model, chat
        self._choices = [_Choice(chat.parser()) for _ in chat.asked.generations]
        self._head = {
            "id": f"chatcmpl-{uuid.uuid4().hex}",
            "created": int(time.time()),
            "model": service.model.name,
        }

    async def whole(self, outputs: Outputs) -> dict[str, Any]:
        async with aclosing(outputs.deltas()) as deltas:
            async for index, delta in deltas:
                self._choices[index].take(delta)
                self._choices[index].tokens += delta.tokens
        choices = [self._whole_choice(index, choice) for index, choice in enumerate(self._choices)]
        return {**self._head, "object": "chat.completion", "choices": choices, "usage": outputs.usage.body()}

    async def stream(self, outputs: Outputs) -> AsyncIterator[bytes]:
        begun = False
        async with aclosing(outputs.deltas()) as deltas:
            async for index, delta in deltas:
                # Only now: what the engine refuses is an HTTP error as long as no chunk is out.
                for each in range(0 if begun else len(self._choices)):
                    yield self._chunk(each, {"role": "assistant", "content": ""}, (), outputs.usage)
                begun = True
                parsed, calls = self._choices[index].take(delta)
                told = _delta(parsed, calls)
                if told or delta.finish_reason is not None or (delta.tokens and self._chat.fields.logprobs):
                    yield self._chunk(index, told, delta.tokens, outputs.usage)
        if self._chat.asked.include_usage:
            yield event({**self._head, **_CHUNK, "choices": [], "usage": outputs.usage.body()})
        yield DONE

    def _whole_choice(self, index: int, choice: _Choice) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": choice.content or (None if choice.calls else "")}
        if self._chat.thinking:
            message["reasoning_content"] = choice.reasoning or None
        if choice.calls:
            message["tool_calls"] = [{k: v for k, v in call.items() if k != "index"} for call in choice.calls]
        return {
            "index": index,
            "message": message,
            "logprobs": self._logprobs(choice.tokens),
            "finish_reason": choice.finish_reason,
            "matched_stop": choice.end.matched_stop,
        }

    def _chunk(self, index: int, told: dict[str, Any], tokens: Sequence[OutputToken], usage: Usage) -> bytes:
        choice = self._choices[index]
        body: dict[str, Any] = {
            **self._head,
            **_CHUNK,
            "choices": [
                {
                    "index": index,
                    "delta": told,
                    "logprobs": self._logprobs(tokens) if tokens else None,
                    "finish_reason": choice.finish_reason,
                    **({"matched_stop": choice.end.matched_stop} if choice.end.finish_reason else {}),
                }
            ],
        }
        if self._chat.asked.include_usage:
            body["usage"] = usage.body() if self._chat.asked.continuous_usage else None
        return event(body)

    def _logprobs(self, tokens: Sequence[OutputToken]) -> dict[str, Any] | None:
        return chat_logprobs(self._model.tokenizer, tokens) if self._chat.fields.logprobs else None


_CHUNK = {"object": "chat.completion.chunk"}


def _delta(parsed: Parsed, calls: list[dict[str, Any]]) -> dict[str, Any]:
    told = {"reasoning_content": parsed.reasoning, "content": parsed.content, "tool_calls": calls}
    return {name: value for name, value in told.items() if value}
