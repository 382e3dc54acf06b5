"""From a request's outputs to its HTTP answer, whole or as events, and nothing left behind however it ends."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Protocol

from starlette.requests import Request
from starlette.responses import Response

from dsv4_engine.server.generation import Asked
from dsv4_engine.server.http import EventStream, json_response, while_connected
from dsv4_engine.server.service import Outputs, Service


class Answer(Protocol):
    """How one endpoint tells its outputs."""

    async def whole(self, outputs: Outputs) -> dict[str, Any]: ...

    def stream(self, outputs: Outputs) -> AsyncIterator[bytes]: ...


async def respond(service: Service, request: Request, asked: Asked, answer: Answer) -> Response:
    """Submit and answer. A client that hangs up, at any time, takes its outputs out of the engine.

    ApiError for what goes wrong before there is anything to tell; later it is the last event of a stream.
    """
    outputs = Outputs(service, asked)
    try:
        if asked.stream:
            return EventStream(await while_connected(request, started(answer.stream(outputs))))
        return json_response(await while_connected(request, answer.whole(outputs)))
    except BaseException:
        outputs.close()
        raise


async def started(events: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The same events, once there is a first one; raises what came instead of it."""
    source: Any = events
    try:
        first = await source.__anext__()
    except BaseException:
        await source.aclose()
        raise
    return _Started(first, source)


class _Started:
    """An iterator with its first item in hand; closing it closes its source, whether or not it was ever iterated."""

    def __init__(self, first: bytes, source: Any) -> None:
        self._first: bytes | None = first
        self._source = source

    def __aiter__(self) -> _Started:
        return self

    async def __anext__(self) -> bytes:
        if self._first is not None:
            first, self._first = self._first, None
            return first
        item: bytes = await self._source.__anext__()
        return item

    async def aclose(self) -> None:
        await self._source.aclose()
