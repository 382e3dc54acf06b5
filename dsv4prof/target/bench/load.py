"""Sends a benchmark's requests, each at its moment or when there is room, and measures."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager, nullcontext, suppress
from typing import Any

import httpx
import msgspec

from dsv4prof.errors import InputError, UsageError
from dsv4prof.target.bench.client import BenchClient, Served
from dsv4prof.target.bench.figures import Figures, figures
from dsv4prof.target.bench.requests import BenchRequest, make_requests
from dsv4prof.target.bench.spec import BenchSpec
from dsv4prof.target.remote.client import host_of, is_loopback, normalized, printable

Progress = Callable[[str], None]
_CONNECT_S = 10.0
_INFO_S = 20.0
_LEAVING_S = 2.0


class Benched(msgspec.Struct, frozen=True, kw_only=True):
    """server: what it told of itself, for the record. asked: requests that were to be sent; fewer were answered when
    interrupted.
    """

    figures: Figures
    asked: int
    interrupted: bool
    model: str | None
    server: dict[str, Any]


def bench(spec: BenchSpec, progress: Progress = lambda event: None) -> Benched:
    """Raises UsageError when the server cannot be reached or refuses the very first request, InputError for prompts
    that cannot be read. Failures of single requests are counted. SIGINT or SIGTERM while requests are under way ends it
    with what was measured until then (in the main thread).
    """
    requests = make_requests(spec)
    return asyncio.run(_bench(spec, requests, progress))


async def _bench(spec: BenchSpec, requests: Sequence[BenchRequest], progress: Progress) -> Benched:
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(_http(spec))
        model = spec.model or await _model(http, spec.url)
        client = BenchClient(spec, http, model=model)
        await _warm_up(spec, client, requests[0], progress)
        if spec.flush:
            await _flush(http)
        progress(f"sending {len(requests)} requests to {normalized(spec.url)}")
        before = await _counts(http)
        served, duration, interrupted = await _send(spec, client, requests)
        after = await _counts(http, timeout=_LEAVING_S if interrupted else _INFO_S)
    accept = after.get("avg_spec_accept_length")
    return Benched(
        figures=figures(served, duration, accept_length=float(accept) if isinstance(accept, int | float) else None),
        asked=len(requests),
        interrupted=interrupted,
        model=model,
        server={"before": before, "after": after},
    )


def _http(spec: BenchSpec) -> httpx.AsyncClient:
    url = normalized(spec.url)
    headers = {} if spec.api_key is None else {"Authorization": f"Bearer {spec.api_key}"}
    return httpx.AsyncClient(
        base_url=url,
        headers=headers,
        timeout=httpx.Timeout(spec.timeout_s, connect=_CONNECT_S),
        # A pool that is too small would make requests wait in the client, and their times would be its own.
        limits=httpx.Limits(max_connections=None, max_keepalive_connections=None),
        trust_env=not is_loopback(host_of(url)),
    )


async def _send(
    spec: BenchSpec, client: BenchClient, requests: Sequence[BenchRequest]
) -> tuple[list[Served], float, bool]:
    """What was answered, the seconds it took, and whether a signal ended it: requests under way then are given up."""
    room: Any = nullcontext() if spec.max_concurrency is None else asyncio.Semaphore(spec.max_concurrency)
    served: list[Served] = []
    began = time.perf_counter()

    async def one(request: BenchRequest) -> None:
        await asyncio.sleep(max(0.0, began + request.at_s - time.perf_counter()))
        async with room:
            served.append(await client.serve(request))

    load = asyncio.gather(*(one(request) for request in requests))
    with _signals() as signalled:
        end = asyncio.ensure_future(signalled.wait())
        await asyncio.wait((load, end), return_when=asyncio.FIRST_COMPLETED)
    duration, interrupted = time.perf_counter() - began, not load.done()
    end.cancel()
    load.cancel()
    with suppress(asyncio.CancelledError):
        await load
    return served, duration, interrupted


@contextmanager
def _signals() -> Iterator[asyncio.Event]:
    """Set by the first SIGINT or SIGTERM in the block. Where a loop cannot hear them, signals do what they did."""
    loop, heard = asyncio.get_running_loop(), asyncio.Event()
    before = {}
    for number in (signal.SIGINT, signal.SIGTERM):
        former = signal.getsignal(number)
        with suppress(NotImplementedError, RuntimeError, ValueError):
            loop.add_signal_handler(number, heard.set)
            before[number] = former
    try:
        yield heard
    finally:
        for number, former in before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL if former is None else former)


async def _warm_up(spec: BenchSpec, client: BenchClient, request: BenchRequest, progress: Progress) -> None:
    """The first request also tells whether the server can count tokens in every chunk."""
    progress("warming up")
    first = await client.serve(request)
    if first.error is not None and first.error.startswith(("HTTP 400", "HTTP 422")):
        client.counts_chunks = False
        first = await client.serve(request)
    if first.error is not None:
        raise UsageError(f"{normalized(spec.url)}: {first.error}", hint=_hint(first.error))
    for _ in range(spec.warmup - 1):
        await client.serve(request)


def _hint(error: str) -> str:
    """A server that says what it refuses is the right one."""
    if error.startswith(("HTTP 400", "HTTP 413", "HTTP 422")):
        return "give shorter prompts, or what else it asks for: see the lengths, --vocab-size and --model-name"
    return "is it an OpenAI-compatible server with /v1/completions?"


async def _model(http: httpx.AsyncClient, url: str) -> str | None:
    """The first model that the server names. Raises UsageError when nobody answers or the key is wrong."""
    try:
        answer = await http.get("/v1/models", timeout=_INFO_S)
    except httpx.TimeoutException:
        raise UsageError(f"{normalized(url)} did not answer within {_INFO_S:g} s", hint="is it starting?") from None
    except httpx.HTTPError as error:
        raise UsageError(f"no server at {normalized(url)}: {error}", hint="start it first, or check the port") from None
    if answer.status_code in (401, 403):
        raise UsageError(
            f"{normalized(url)} refuses without the right key (HTTP {answer.status_code})", hint="--api-key"
        )
    models = _object(answer).get("data")
    first = models[0] if isinstance(models, list) and models and isinstance(models[0], dict) else {}
    name = first.get("id")
    return printable(name) if isinstance(name, str) else None


async def _counts(http: httpx.AsyncClient, *, timeout: float = _INFO_S) -> dict[str, Any]:
    """SGLang's and our own state of the engine; empty where a server tells none."""
    for path in ("/server_info", "/get_server_info"):
        try:
            states = _object(await http.get(path, timeout=timeout)).get("internal_states")
        except httpx.HTTPError:
            return {}
        if isinstance(states, list) and states and isinstance(states[0], dict):
            return {key: value for key, value in states[0].items() if isinstance(value, int | float)}
    return {}


async def _flush(http: httpx.AsyncClient) -> None:
    try:
        answer = await http.post("/flush_cache", timeout=_INFO_S)
    except httpx.HTTPError as error:
        raise InputError(f"the prefix cache could not be flushed: {error}") from None
    if answer.status_code != 200:
        raise InputError(
            f"the prefix cache could not be flushed: HTTP {answer.status_code}", hint="leave out --flush-cache"
        )


def _object(answer: httpx.Response) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(answer.content)
    except msgspec.DecodeError:
        return {}
    return found if answer.status_code == 200 and isinstance(found, dict) else {}
