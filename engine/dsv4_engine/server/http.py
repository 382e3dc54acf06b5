"""HTTP's share of an address: bounded bodies, JSON answers, event streams, and an eye on clients that hang up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from dsv4_engine.server.errors import ApiError

Value = TypeVar("Value")
_BODY_S = 60.0
_LOUD = 64 << 10
DONE = b"data: [DONE]\n\n"


def json_response(body: object, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(body), status, headers, media_type="application/json")


def error_response(error: ApiError) -> Response:
    # What is left of a body that was refused unread is not the next request of this connection.
    headers = {**error.headers, **({"Connection": "close"} if error.status in (408, 413) else {})}
    return json_response(error.body(), status=error.status, headers=headers)


def event(body: object) -> bytes:
    """One server-sent event."""
    return b"data: " + msgspec.json.encode(body) + b"\n\n"


async def read_body(request: Request, *, most: int) -> bytes:
    """ApiError 413 before more than `most` bytes are kept, 408 for a body that does not come."""
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > most:
        raise _too_large(most)
    try:
        return await asyncio.wait_for(_collect(request, most), _BODY_S)
    except asyncio.TimeoutError:
        raise ApiError(f"the body did not arrive within {_BODY_S:g} s", status=408) from None


async def _collect(request: Request, most: int) -> bytes:
    chunks, size = [], 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > most:
            raise _too_large(most)
        chunks.append(chunk)
    return b"".join(chunks)


def _too_large(most: int) -> ApiError:
    return ApiError(f"the body is larger than {most >> 20} MiB", status=413, code="body_too_large")


async def off_loop(call: Callable[[], Value], *, size: int) -> Value:
    """Call it; on a thread where an input of `size` bytes would keep the event loop from everybody else."""
    return await asyncio.to_thread(call) if size > _LOUD else call()


async def while_connected(request: Request, work: Awaitable[Value]) -> Value:
    """The work's result; the work is cancelled, and ClientDisconnect raised, when the client has gone."""
    task, gone = asyncio.ensure_future(work), asyncio.ensure_future(_disconnected(request.receive))
    try:
        await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientDisconnect
        return task.result()
    finally:
        gone.cancel()
        task.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class EventStream(Response):
    """Events as they come. A client that hangs up ends the iterator, also while nothing is there to be sent.

    An ApiError after the headers becomes a last event, in the form that OpenAI's clients raise.
    """

    media_type = "text/event-stream"

    def __init__(self, events: AsyncIterator[bytes]) -> None:
        super().__init__(None, headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sending = asyncio.ensure_future(self._send(send))
        gone = asyncio.ensure_future(_disconnected(receive))
        try:
            await asyncio.wait((sending, gone), return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
            if not sending.done():
                sending.cancel()
            results = await asyncio.gather(sending, gone, return_exceptions=True)
            await self._events.aclose()  # type: ignore[attr-defined]
        failure: Any = results[0]
        if isinstance(failure, Exception) and not isinstance(failure, OSError):
            raise failure

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async for item in self._safe():
            await send({"type": "http.response.body", "body": item, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _safe(self) -> AsyncIterator[bytes]:
        try:
            async for item in self._events:
                yield item
        except ApiError as error:
            yield event(error.body())
            yield DONE
