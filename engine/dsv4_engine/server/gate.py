"""What every request passes before any address sees it: an id, the key, and who may ask on the loopback.

A page in a browser can send requests to a server on the reader's own machine. Without a key nothing but their origin
tells them apart, so a server on the loopback refuses them, and names that are not the loopback's (DNS rebinding).
"""

from __future__ import annotations

import hmac
import ipaddress
import uuid

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dsv4_engine.server.errors import ApiError
from dsv4_engine.server.http import error_response
from dsv4_engine.server.options import ServerOptions

_OPEN = ("/health",)
_LONGEST_ID = 128


class Gate:
    """An ASGI application around another one."""

    def __init__(self, app: ASGIApp, options: ServerOptions) -> None:
        self._app = app
        self._key = options.api_key.encode() if options.api_key is not None else None
        self._local_only = options.api_key is None and is_loopback(options.host)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        request_id = _request_id(headers.get("x-request-id", ""))

        async def send_named(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)["x-request-id"] = request_id
            await send(message)

        refusal = self._refusal(scope["path"], headers)
        answer = self._app if refusal is None else error_response(refusal)
        await answer(scope, receive, send_named)

    def _refusal(self, path: str, headers: Headers) -> ApiError | None:
        if self._key is not None and path not in _OPEN:
            kind, _, given = headers.get("authorization", "").partition(" ")
            if kind.lower() != "bearer" or not hmac.compare_digest(given.strip().encode(), self._key):
                return ApiError(
                    "the API key is missing or wrong: send Authorization: Bearer KEY",
                    status=401,
                    type="authentication_error",
                    code="invalid_api_key",
                    headers={"WWW-Authenticate": "Bearer"},
                )
        if self._local_only and (_from_page(headers) or not is_loopback(_host_name(headers.get("host", "")))):
            return ApiError(
                "requests of web pages, and by other names than the loopback's, are refused without an API key",
                status=403,
                type="permission_error",
            )
        return None


def is_loopback(host: str) -> bool:
    """Whether a name is this host's own, by its form alone; a request without a Host header comes from a program."""
    host = host.lower().removesuffix(".")
    if host in ("", "localhost") or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _from_page(headers: Headers) -> bool:
    origin = headers.get("origin")
    foreign = origin is not None and origin.rpartition("://")[2] != headers.get("host")
    return foreign or headers.get("sec-fetch-site", "none") not in ("none", "same-origin")


def _host_name(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


def _request_id(given: str) -> str:
    """The client's own, where a header can carry it back, else a new one."""
    fine = given.isascii() and given.isprintable() and 0 < len(given) <= _LONGEST_ID
    return given if fine else f"req_{uuid.uuid4().hex}"
