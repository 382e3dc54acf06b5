"""One streamed completion, timed as its client sees it."""

from __future__ import annotations

import asyncio
import time
from typing import Annotated, Any

import httpx
import msgspec

from dsv4prof.target.bench.requests import BenchRequest
from dsv4prof.target.bench.spec import BenchSpec
from dsv4prof.target.remote.client import printable

_DONE = "[DONE]"


_Count = Annotated[int, msgspec.Meta(ge=0)]


class _Details(msgspec.Struct):
    cached_tokens: _Count | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: _Count | None = None
    completion_tokens: _Count | None = None
    prompt_tokens_details: _Details | None = None


class _Choice(msgspec.Struct):
    text: str | None = None


class _Chunk(msgspec.Struct):
    """One event of a stream, as far as it is read. usage: so far where the server counts in every chunk."""

    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: Any = None


_decoder = msgspec.json.Decoder(_Chunk)


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
            # httpx bounds each read: a server that says a word now and then would be waited for without end.
            await asyncio.wait_for(self._stream(request, served), self._spec.timeout_s)
        except (httpx.TimeoutException, asyncio.TimeoutError):
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
                try:
                    chunk = _decoder.decode(text)
                except (msgspec.DecodeError, RecursionError) as error:
                    served.error = printable(f"an event of the stream makes no sense: {error}")
                    return
                if chunk.error is not None:
                    served.error = _said(text.encode())
                    return
                usage = chunk.usage or _Usage()
                if (told := usage.completion_tokens or 0) > request.output_len:
                    served.error = f"the server counts {told} tokens, and {request.output_len} were asked for"
                    return
                total = told or counted + any(choice.text for choice in chunk.choices or ())
                if chunk.choices and total > counted:
                    now = time.perf_counter()
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
    if first:
        served.ttft = gap
        # What came with the first token did not have to be waited for.
        served.itl += [0.0] * (tokens - 1)
    else:
        served.itl += [gap / tokens] * tokens


def _take_usage(served: Served, usage: _Usage) -> None:
    served.prompt_tokens = usage.prompt_tokens or served.prompt_tokens
    served.output_tokens = usage.completion_tokens or served.output_tokens
    details = usage.prompt_tokens_details or _Details()
    served.cached_tokens = details.cached_tokens or served.cached_tokens


def _said(body: bytes) -> str:
    """A server's own words about an error, as one line."""
    try:
        told = msgspec.json.decode(body)
    except msgspec.DecodeError:
        told = None
    error = told.get("error", told) if isinstance(told, dict) else None
    message = error.get("message") if isinstance(error, dict) else error
    return printable(message if isinstance(message, str) else body[:200].decode("utf-8", "replace"))
