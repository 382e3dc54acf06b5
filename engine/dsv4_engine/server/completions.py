"""`POST /v1/completions`: text that goes on where prompts end."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from dsv4_engine.server.answers import respond
from dsv4_engine.server.decoding import decode_fields
from dsv4_engine.server.errors import ApiError
from dsv4_engine.server.fields import CompletionFields
from dsv4_engine.server.generation import Asked, ask, completion_max_tokens, completion_prompts, require_model
from dsv4_engine.server.http import DONE, event, off_loop, read_body
from dsv4_engine.server.logprobs import completion_logprobs
from dsv4_engine.server.output import Delta, OutputToken
from dsv4_engine.server.service import Outputs, Service, Usage


async def completions(service: Service, request: Request) -> Response:
    """ApiError on whatever is wrong with the request, before anything is computed."""
    body = await read_body(request, most=service.options.max_body_bytes)
    fields, asked = await off_loop(lambda: _asked(service, body), size=len(body))
    return await respond(service, request, asked, _Answer(service, fields, asked))


def _asked(service: Service, body: bytes) -> tuple[CompletionFields, Asked]:
    fields = decode_fields(body, CompletionFields)
    require_model(service.model, fields.model)
    if fields.echo and fields.logprobs is not None:
        raise ApiError("echo with logprobs is not supported: prompts have no log probabilities", param="echo")
    prompts = completion_prompts(fields, service.model.tokenizer)
    asked = ask(service.model, fields, prompts, max_tokens=completion_max_tokens(fields), logprobs=fields.logprobs)
    return fields, asked


class _Answer:
    """One request's answer, whole or as a stream of chunks."""

    def __init__(self, service: Service, fields: CompletionFields, asked: Asked) -> None:
        self._model, self._fields, self._asked = service.model, fields, asked
        self._head = {
            "id": f"cmpl-{uuid.uuid4().hex}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": service.model.name,
        }

    async def whole(self, outputs: Outputs) -> dict[str, Any]:
        number = len(self._asked.generations)
        texts = [self._echo(index) for index in range(number)]
        tokens: list[list[OutputToken]] = [[] for _ in range(number)]
        ends = [Delta()] * number
        async with aclosing(outputs.deltas()) as deltas:
            async for index, delta in deltas:
                texts[index] += delta.text
                tokens[index] += delta.tokens
                ends[index] = delta
        choices = [self._choice(index, texts[index], tokens[index], ends[index]) for index in range(number)]
        return {**self._head, "choices": choices, "usage": outputs.usage.body()}

    async def stream(self, outputs: Outputs) -> AsyncIterator[bytes]:
        told = [False] * len(self._asked.generations)
        async with aclosing(outputs.deltas()) as deltas:
            async for index, delta in deltas:
                echo = "" if told[index] else self._echo(index)
                if not (echo or delta.text or delta.tokens or delta.finish_reason):
                    continue
                if not (echo or delta.text or delta.finish_reason or self._fields.logprobs is not None):
                    continue
                told[index] = True
                yield self._chunk([self._choice(index, echo + delta.text, delta.tokens, delta)], outputs.usage)
        if self._asked.include_usage:
            yield event({**self._head, "choices": [], "usage": outputs.usage.body()})
        yield DONE

    def _chunk(self, choices: list[dict[str, Any]], usage: Usage) -> bytes:
        told: dict[str, Any] = {}
        if self._asked.include_usage:
            told = {"usage": usage.body() if self._asked.continuous_usage else None}
        return event({**self._head, "choices": choices, **told})

    def _choice(self, index: int, text: str, tokens: Sequence[OutputToken], delta: Delta) -> dict[str, Any]:
        logprobs = None
        if self._fields.logprobs is not None:
            logprobs = completion_logprobs(self._model.tokenizer, tokens)
        return {
            "index": index,
            "text": text,
            "logprobs": logprobs,
            "finish_reason": delta.finish_reason,
            "matched_stop": delta.matched_stop,
        }

    def _echo(self, index: int) -> str:
        if not self._fields.echo:
            return ""
        prompt = self._fields.prompt
        if isinstance(prompt, str):
            return prompt
        texts = [item for item in prompt if isinstance(item, str)]
        generation = self._asked.generations[index]
        return texts[index // self._asked.n] if texts else self._model.tokenizer.decode(generation.prompt)
