"""A socket, uvicorn, and an end that leaves no request without an answer."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import uvicorn
from starlette.types import ASGIApp

from dsv4_engine.errors import EngineError
from dsv4_engine.server.connection import Connection
from dsv4_engine.server.engine_thread import EngineThread
from dsv4_engine.server.options import ServerOptions

_BACKLOG = 2048
_KEEP_ALIVE_S = 30
# The engine is closed and every answer is out by then; this bounds clients that do not take theirs.
_LAST_BYTES_S = 2


def bind(options: ServerOptions) -> socket.socket:
    """A listening socket; EngineError where the port is taken or the host is not this machine's."""
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    # asyncio switches Nagle's algorithm off, without which each answer waits 40 ms, only where TCP is named.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((options.host, options.port))
        listener.listen(_BACKLOG)
    except (OSError, UnicodeError) as error:
        listener.close()
        words = getattr(error, "strerror", None) or str(error)
        raise EngineError(
            f"port {options.port} on {options.host} cannot be used: {words}", hint="name another port, or 0 for any"
        ) from None
    return listener


def url_of(listener: socket.socket) -> str:
    """`http://127.0.0.1:40123`."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def serve(
    app: ASGIApp,
    engine: EngineThread,
    listener: socket.socket,
    *,
    grace_s: float,
    ready: Callable[[], None] = lambda: None,
    stop: Callable[[Callable[[], None]], None] = lambda end: None,
) -> bool:
    """Serve until SIGINT or SIGTERM; whether SIGINT ended it. A second signal does not wait for requests.

    ready is called when requests are answered; stop is handed a function that ends the server from any thread, for
    programs whose main thread is somewhere else.
    """
    config = uvicorn.Config(
        app,
        http=Connection,
        log_level="error",
        access_log=False,
        lifespan="on",
        server_header=False,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=_LAST_BYTES_S,
    )
    server = _Server(config, engine, grace_s=grace_s, ready=ready)
    asyncio.run(_serve(server, listener, stop))
    return server.interrupted


async def _serve(server: _Server, listener: socket.socket, stop: Callable[[Callable[[], None]], None]) -> None:
    loop = asyncio.get_running_loop()

    def end() -> None:
        loop.call_soon_threadsafe(server.end)

    stop(end)
    installed = []
    # Only the main thread's loop can have signals.
    with suppress(ValueError, RuntimeError, NotImplementedError):
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, server.end, number)
            installed.append(number)
    try:
        await server.serve(sockets=[listener])
    finally:
        for number in installed:
            loop.remove_signal_handler(number)


class _Server(uvicorn.Server):
    """uvicorn's, but that the engine is closed first, while its requests can still be answered."""

    def __init__(
        self, config: uvicorn.Config, engine: EngineThread, *, grace_s: float, ready: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self._engine, self._grace_s, self._ready = engine, grace_s, ready
        self.interrupted = False

    def end(self, number: int | None = None) -> None:
        """On the event loop's thread."""
        self.interrupted = self.interrupted or number == signal.SIGINT
        if self.should_exit:
            self._engine.hurry()
        self.should_exit = True

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        # uvicorn would raise them once more at its end, and SIGTERM end the process with them.
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self._engine.close(grace_s=self._grace_s)
        await super().shutdown(sockets)
