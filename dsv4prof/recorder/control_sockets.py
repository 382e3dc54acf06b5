"""HTTP as a client may send it, which is anything: too slow, too large, too many, half, or from a page in a browser.

Each of those gets one JSON sentence and costs the program a bounded time, a bounded number of threads and no output.
"""

from __future__ import annotations

import logging
import os
import socket
import socketserver
import sys
import threading
import time
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import urlsplit

import msgspec

from dsv4prof.recorder.control_requests import Reply, Routes, refusal

MAX_BODY_BYTES = 1 << 20
MAX_REQUESTS = 8
# The whole request, headers and body, has to be here by then; checked twice a second.
READ_PATIENCE_S = 10.0
_POLL_S = 0.5
# What a refused client may still be sending is read for so long, or it would see a reset instead of the answer.
_LINGER_S = 1.0
_LOOPBACK_NAMES = frozenset({"127.0.0.1", "localhost", "::1"})


class _RefusedError(Exception):
    """A request that ends here; `args[0]` is the reply."""


class HttpSockets(socketserver.ThreadingMixIn, socketserver.TCPServer):
    """The listening socket and its connections, a daemon thread each. Binds when made, raises OSError."""

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 32

    def __init__(self, address: tuple[str, int], routes: Routes) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self.host = address[0]
        self.routes = routes
        self._slots = threading.BoundedSemaphore(MAX_REQUESTS)
        # Each connection with the moment by which its request has to be here; None once it is.
        self._connections: dict[socket.socket, float | None] = {}
        self._workers: set[threading.Thread] = set()
        super().__init__(address, _Handler)
        self.local_only = _is_loopback(self.server_address[0])

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def serve(self) -> None:
        self.serve_forever(_POLL_S)

    def request_is_here(self, connection: socket.socket) -> None:
        self._connections[connection] = None

    def close(self, patience_s: float) -> None:
        """Listen no more, cut who is still sending, and give who waits for an answer that long."""
        # Wakes the loop, which would notice only half a second later.
        _cut(self.socket)
        self.shutdown()
        self.server_close()
        for connection, deadline in list(self._connections.items()):
            if deadline is not None:
                _cut(connection)
        until = time.monotonic() + patience_s
        for worker in list(self._workers):
            if worker is not threading.current_thread():
                worker.join(max(0.0, until - time.monotonic()))
        for connection in list(self._connections):
            _cut(connection)

    def disown(self) -> None:
        """For the child of a fork: nothing is cut, for the connections are the parent's, and no lock is taken."""
        for each in (self.socket, *list(self._connections)):
            with suppress(OSError):
                os.close(each.detach())

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._slots.acquire(blocking=False):
            self._turn_away(request)
            return
        worker = threading.Thread(
            target=self._serve_one, args=(request, client_address), name="dsv4prof-request", daemon=True
        )
        self._connections[request] = time.monotonic() + READ_PATIENCE_S
        self._workers.add(worker)
        try:
            worker.start()
        except RuntimeError:
            # No thread is to be had; the client sees its connection end.
            self._forget(request, worker)
            self.shutdown_request(request)

    def service_actions(self) -> None:
        now = time.monotonic()
        for connection, deadline in list(self._connections.items()):
            if deadline is not None and now > deadline:
                _cut(connection, socket.SHUT_RD)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A fault of ours is told to the client in a sentence, and to the program's log whole."""
        error = sys.exc_info()[1]
        if isinstance(error, OSError):
            # The client has gone.
            return
        logging.getLogger("dsv4prof").error("the control server failed", exc_info=error)
        with suppress(OSError):
            request.sendall(_raw(refusal(500, f"internal error: {type(error).__name__}")))

    def _serve_one(self, request: Any, client_address: Any) -> None:
        try:
            self.process_request_thread(request, client_address)
        finally:
            self._forget(request, threading.current_thread())

    def _forget(self, request: Any, worker: threading.Thread) -> None:
        self._connections.pop(request, None)
        self._workers.discard(worker)
        self._slots.release()

    def _turn_away(self, request: Any) -> None:
        with suppress(OSError):
            request.settimeout(0)
            request.sendall(_raw(refusal(503, f"{MAX_REQUESTS} requests are being served already", "try again later")))
        self.shutdown_request(request)


class _Handler(BaseHTTPRequestHandler):
    """One request a connection (HTTP/1.0 answers), so that no idle client holds a place."""

    server: HttpSockets
    timeout = READ_PATIENCE_S
    server_version = "dsv4prof"
    sys_version = ""
    _unread = False

    def do_GET(self) -> None:
        try:
            reply = self._reply()
        except _RefusedError as refused:
            reply = refused.args[0]
        self._send(reply)

    do_POST = do_HEAD = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = do_GET

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What the base class finds wrong with a request, in our form."""
        if code == HTTPStatus.NOT_IMPLEMENTED:
            self.do_GET()
            return
        self._send(refusal(int(code), message or HTTPStatus(code).phrase))

    def log_message(self, format: str, *args: Any) -> None:
        """The program's stderr is its own."""

    def finish(self) -> None:
        super().finish()
        if self._unread:
            _linger(self.connection)

    def _reply(self) -> Reply:
        self._unread = any(self.headers.get(name) for name in ("Content-Length", "Transfer-Encoding"))
        self._check_sender()
        try:
            parts = urlsplit(self.path)
        except ValueError:
            return refusal(400, "the request's address cannot be read")
        return self.server.routes.answer(self.command, parts.path, parts.query, self._body)

    def _check_sender(self) -> None:
        """A page in a browser can send requests to this machine; it cannot leave out who it is."""
        if not self.server.local_only:
            return
        page = self.headers.get("Origin") or self.headers.get("Referer")
        if page or self.headers.get("Sec-Fetch-Site", "none") != "none":
            raise _RefusedError(refusal(403, "a page in a browser cannot control the profiler", "use curl"))
        host = self.headers.get("Host", "").strip().lower()
        name = host[1:].split("]")[0] if host.startswith("[") else host.rsplit(":", 1)[0]
        if name and name not in _LOOPBACK_NAMES and name != self.server.host.lower():
            raise _RefusedError(refusal(403, "the request is for another host", f"address it to {self.server.host}"))

    def _body(self) -> bytes:
        """The whole body, as long as its Content-Length says; raises _RefusedError."""
        if self.headers.get("Transfer-Encoding"):
            raise _RefusedError(refusal(411, "the body's length has to be given", "send a Content-Length"))
        lengths = self.headers.get_all("Content-Length", [])
        if not lengths:
            self.server.request_is_here(self.connection)
            return b""
        if len(lengths) > 1 or not (lengths[0].isascii() and lengths[0].isdecimal()):
            raise _RefusedError(refusal(400, "the Content-Length is no number"))
        # A number of thousands of digits is an error to convert.
        if len(lengths[0]) > 20 or int(lengths[0]) > MAX_BODY_BYTES:
            raise _RefusedError(refusal(413, f"the body is larger than {MAX_BODY_BYTES >> 20} MiB"))
        try:
            body = self.rfile.read(int(lengths[0]))
        except TimeoutError:
            body = b""
        if len(body) < int(lengths[0]):
            raise _RefusedError(refusal(408, "the body is shorter than its Content-Length, or came too slowly"))
        self._unread = False
        self.server.request_is_here(self.connection)
        return body

    def _send(self, reply: Reply) -> None:
        self.close_connection = True
        body = msgspec.json.encode(reply.payload)
        self.send_response_only(reply.status)
        for name, value in {**_headers(body), **reply.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _headers(body: bytes) -> dict[str, str]:
    return {
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
        "Cache-Control": "no-store",
        "Connection": "close",
    }


def _raw(reply: Reply) -> bytes:
    """A whole answer in one piece, for where there is no handler."""
    body = msgspec.json.encode(reply.payload)
    status = HTTPStatus(reply.status)
    lines = [f"HTTP/1.0 {status.value} {status.phrase}", *(f"{k}: {v}" for k, v in _headers(body).items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + body


def _cut(connection: socket.socket, how: int = socket.SHUT_RDWR) -> None:
    with suppress(OSError):
        connection.shutdown(how)


def _linger(connection: socket.socket) -> None:
    until = time.monotonic() + _LINGER_S
    with suppress(OSError):
        connection.shutdown(socket.SHUT_WR)
        while (left := until - time.monotonic()) > 0:
            connection.settimeout(left)
            if not connection.recv(1 << 16):
                return


def _is_loopback(address: Any) -> bool:
    """Whether only this machine reaches a bound address."""
    return str(address).startswith("127.") or str(address) == "::1"
