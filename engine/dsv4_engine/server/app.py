"""The addresses of the server, and what becomes of every error: a JSON object in OpenAI's form."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from dsv4_engine.server import admin
from dsv4_engine.server.chat_completions import chat_completions
from dsv4_engine.server.completions import completions
from dsv4_engine.server.errors import ApiError
from dsv4_engine.server.gate import Gate
from dsv4_engine.server.http import error_response
from dsv4_engine.server.service import Service

Endpoint = Callable[[Service, Request], Awaitable[Response]]
_GET, _POST, _BOTH = ["GET"], ["POST"], ["GET", "POST"]
# Nobody reads it: whoever asked has gone. The number is nginx's.
_CLIENT_GONE = 499

ADDRESSES: tuple[tuple[str, list[str], Endpoint], ...] = (
    ("/v1/completions", _POST, completions),
    ("/v1/chat/completions", _POST, chat_completions),
    ("/v1/models", _GET, admin.models),
    ("/v1/models/{name:path}", _GET, admin.model),
    ("/health", _GET, admin.health),
    ("/health_generate", _GET, admin.health_generate),
    ("/metrics", _GET, admin.metrics),
    ("/model_info", _GET, admin.model_info),
    ("/get_model_info", _GET, admin.model_info),
    ("/server_info", _GET, admin.server_info),
    ("/get_server_info", _GET, admin.server_info),
    ("/flush_cache", _BOTH, admin.flush_cache),
    ("/start_profile", _BOTH, admin.profile),
    ("/stop_profile", _BOTH, admin.profile),
    ("/profile_status", _GET, admin.profile),
)


def build_app(service: Service) -> ASGIApp:
    """An ASGI application, whose lifespan gives the engine's thread the event loop and closes it at the end."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        service.engine.attach(asyncio.get_running_loop())
        yield
        await service.engine.close(grace_s=service.options.grace_s)

    app = Starlette(
        routes=[Route(path, _bound(service, endpoint), methods=methods) for path, methods, endpoint in ADDRESSES],
        exception_handlers={HTTPException: _not_found, Exception: _unexpected},
        lifespan=lifespan,
    )
    return Gate(app, service.options)


def _bound(service: Service, endpoint: Endpoint) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        try:
            return await endpoint(service, request)
        except ApiError as error:
            service.metrics.refused[error.status] += 1
            return error_response(error)
        except ClientDisconnect:
            return Response(status_code=_CLIENT_GONE)
        except RecursionError:
            # Only a request's JSON is that deep; what could be decoded may still be too deep to be written or shown.
            service.metrics.refused[400] += 1
            return error_response(ApiError("the body is nested too deeply"))

    return answer


async def _not_found(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    path = request.url.path
    words = {404: f"there is nothing at {path[:100]}", 405: f"{path} does not take {request.method}"}
    message = words.get(error.status_code, str(error.detail))
    return error_response(
        ApiError(message, status=error.status_code, code="not_found", headers=dict(error.headers or {}))
    )


async def _unexpected(request: Request, error: Exception) -> Response:
    """Starlette raises it again afterwards, so that the log has the traceback."""
    return error_response(
        ApiError(f"internal error: {type(error).__name__}", status=500, type="server_error", code="internal_error")
    )
