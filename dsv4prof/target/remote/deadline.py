"""One time limit for a whole HTTP exchange: a socket's own limit begins anew with every byte that trickles in."""

from __future__ import annotations

import http.client
import socket
import threading
import urllib.request
from contextlib import suppress
from types import TracebackType
from typing import Any


class Deadline:
    """Hangs up after `seconds`, from another thread; `passed` says that it did."""

    def __init__(self, seconds: float) -> None:
        self.passed = False
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._timer = threading.Timer(seconds, self._hang_up)
        self._timer.daemon = True

    def __enter__(self) -> Deadline:
        self._timer.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._timer.cancel()

    def watch(self, connected: socket.socket) -> None:
        with self._lock:
            self._socket = connected
        if self.passed:
            self._hang_up()

    def _hang_up(self) -> None:
        self.passed = True
        with self._lock:
            if self._socket is not None:
                # The plain one: an encrypted socket's own takes its state away from under the thread that reads.
                with suppress(OSError):
                    socket.socket.shutdown(self._socket, socket.SHUT_RDWR)


def _watched(kind: type[http.client.HTTPConnection], deadline: Deadline) -> Any:
    """What urllib makes its connection with."""

    def make(host: str, **options: Any) -> http.client.HTTPConnection:
        connection = kind(host, **options)
        connect = connection.connect

        def connect_watched() -> None:
            connect()
            deadline.watch(connection.sock)

        connection.connect = connect_watched  # type: ignore[method-assign]
        return connection

    return make


class HttpWithDeadline(urllib.request.HTTPHandler):
    """Plain HTTP for requests that carry a `deadline`."""

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_watched(http.client.HTTPConnection, req.deadline), req)  # type: ignore[attr-defined]


class HttpsWithDeadline(urllib.request.HTTPSHandler):
    """Encrypted HTTP for requests that carry a `deadline`."""

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_watched(http.client.HTTPSConnection, req.deadline), req)  # type: ignore[attr-defined]
