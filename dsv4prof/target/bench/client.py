"""One streamed completion, timed as its client sees it."""

from __future__ import annotations

import json
import time
from typing import Any

import httpx
import msgspec

from dsv4prof.target.bench.requests import BenchRequest
from dsv4prof.target.bench.spec import BenchSpec
from dsv4prof.target.remote.client import printable

_DONE = "[DONE]"


class Served(msgspec.Struct, kw_only=True):
    """Seconds of one request, counted from its sending. itl: between tokens, one entry for each token but the first; a
    chunk of several tokens gives each its share. error: why it failed, None when it did not.
    """

    began: float
    latency: float = 0.0
    ttft: float = 0.0
    itl: list[float] = []
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    error: str | None = None


class BenchClient:
    """Asks one server; `model` and whether it counts tokens in every chunk are found out before the clock starts."""

    def __init__(self, spec: BenchSpec, http: httpx.AsyncClient, *, model: str | None) -> None:
        self._spec, self._http, self._model = spec, http, model
        self.counts_chunks = True

    async def serve(self, request: BenchRequest) -> Served:
        """Never raises for what the server or the network does."""
        served = Served(began=time.perf_counter())
        try:
            await self._stream(request, served)
        except httpx.TimeoutException:
            served.error = f"no answer within {self._spec.timeout_s:g} s"
        except (httpx.HTTPError, httpx.StreamError) as error:
            served.error = f"{type(error).__name__}: {error}".rstrip(": ")
        if served.error is None and served.output_tokens == 0:
            served.error = "the answer has no tokens"
        return served

    async def _stream(self, request: BenchRequest, served: Served) -> None:
        async with self._http.stream("POST", "/v1/completions", json=self._body(request)) as answer:
            if answer.status_code != 200:
                served.error = f"HTTP {answer.status_code}: {_said(await answer.aread())}"
                return
            latest, counted = served.began, 0
            async for line in answer.aiter_lines():
                if not line.startswith("data:") or (text := line[5:].strip()) == _DONE:
                    continue
                chunk = json.loads(text)
                if "error" in chunk:
                    served.error = _said(text.encode())
                    return
                usage = chunk.get("usage") or {}
                if any(choice.get("text") or choice.get("finish_reason") for choice in chunk.get("choices") or ()):
                    now = time.perf_counter()
                    total = usage.get("completion_tokens") or counted + 1
                    _note(served, now - latest, total - counted, first=counted == 0)
                    latest, counted = now, total
                    served.latency = now - served.began
                _take_usage(served, usage)
            served.output_tokens = served.output_tokens or counted

    def _body(self, request: BenchRequest) -> dict[str, Any]:
        counting = {"continuous_usage_stats": True} if self.counts_chunks else {}
        return {
            "model": self._model,
            "prompt": request.prompt,
            "max_tokens": request.output_len,
            "temperature": self._spec.temperature,
            "ignore_eos": self._spec.ignore_eos,
            "stream": True,
            "stream_options": {"include_usage": True, **counting},
        }


def _note(served: Served, gap: float, tokens: int, *, first: bool) -> None:
    if tokens < 1:
        return
    if first:
        served.ttft = gap
        # What came with the first token did not have to be waited for.
        served.itl += [0.0] * (tokens - 1)
    else:
        served.itl += [gap / tokens] * tokens


def _take_usage(served: Served, usage: dict[str, Any]) -> None:
    served.prompt_tokens = usage.get("prompt_tokens") or served.prompt_tokens
    served.output_tokens = usage.get("completion_tokens") or served.output_tokens
    details = usage.get("prompt_tokens_details") or {}
    served.cached_tokens = details.get("cached_tokens") or served.cached_tokens


def _said(body: bytes) -> str:
    """A server's own words about an error, as one line."""
    try:
        told = msgspec.json.decode(body)
    except msgspec.DecodeError:
        told = None
    error = told.get("error", told) if isinstance(told, dict) else None
    message = error.get("message") if isinstance(error, dict) else error
    return printable(message if isinstance(message, str) else body[:200].decode("utf-8", "replace"))
