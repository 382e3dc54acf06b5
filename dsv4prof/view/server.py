"""One trace and the Perfetto UI over HTTP, for the browser of this machine's user and nobody else.

A trace tells what a company runs, and any page in the same browser can send requests to the loopback. So everything
lies below a random path, the Host must be this server's (a foreign name that resolves to 127.0.0.1 is refused), what
another page requests is refused, and no answer may be read by another origin.
"""

from __future__ import annotations

import hmac
import secrets
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import quote, unquote

from dsv4prof.errors import InputError, UsageError
from dsv4prof.view.lifetime import Lifetime
from dsv4prof.view.links import LOOPBACK
from dsv4prof.view.ui import Assets

_PIECE = 1 << 18
# A client that sends or takes nothing for so long loses its connection.
_SOCKET_S = 60.0
_NAVIGATION = "navigate"
_OWN = ("same-origin", "none")


class ViewServer:
    """Serves `trace` and the UI in `ui` (see `find_ui`) on 127.0.0.1 from construction to `close`.

    `port` 0 takes a free one. Raises UsageError for a port that cannot be used, InputError for a trace that cannot be
    read. A context manager.
    """

    def __init__(self, trace: Path, ui: Path, lifetime: Lifetime, *, port: int = 0) -> None:
        self.token = secrets.token_urlsafe(18)
        self.name = trace.name
        try:
            with trace.open("rb"):
                pass
        except OSError as error:
            raise InputError(f"cannot read {trace}: {error.strerror or error}", hint="check its path") from error
        site = _Site(trace, Assets(ui), self.token, lifetime)
        try:
            self._http = _Server((LOOPBACK, port), _Handler)
        except (OSError, OverflowError) as error:
            raise UsageError(f"cannot serve on port {port}: {error}", hint="--port 0 takes a free one") from error
        self.port: int = self._http.server_address[1]
        site.hosts = (f"{LOOPBACK}:{self.port}", f"localhost:{self.port}")
        self._http.site = site
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.1,), name="dsv4prof-view", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening and let the port go. A transfer that is under way is cut."""
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def __enter__(self) -> ViewServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Site:
    """What there is to serve, and to whom."""

    def __init__(self, trace: Path, assets: Assets, token: str, lifetime: Lifetime) -> None:
        self.trace = trace
        self.assets = assets
        self.token = token
        self.lifetime = lifetime
        self.hosts: tuple[str, ...] = ()
        # The UI's own rules allow far more: addresses of its makers, and any port of the loopback.
        self.policy = "; ".join(
            [
                "default-src 'self'",
                f"script-src 'self' 'unsafe-eval' {' '.join(assets.scripts)}",
                "style-src 'self' 'unsafe-inline'",
                "img-src 'self' data: blob:",
                "font-src 'self' data:",
                "connect-src 'self' data: blob:",
                "worker-src 'self' blob:",
                "object-src 'none'",
                "base-uri 'none'",
                "form-action 'none'",
                "frame-ancestors 'none'",
            ]
        )


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # Waiting for them would keep a closed server as long as a browser keeps its connections.
    block_on_close = False
    site: _Site

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that drops a connection is no news."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = _SOCKET_S
    server: _Server

    def do_GET(self) -> None:
        self._answer(body=True)

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def version_string(self) -> str:
        return "dsv4prof"

    def log_message(self, *_: object) -> None:
        """The reason for the end is what a user wants to know, not every request."""

    def _answer(self, *, body: bool) -> None:
        site = self.server.site
        refusal = self._refusal(site)
        if refusal is not None:
            self._fail(refusal)
            return
        parts = self.path.partition("?")[0].split("/", 2)
        # A path without the token may not even tell which files exist.
        if len(parts) < 3 or parts[0] or not hmac.compare_digest(parts[1].encode(), site.token.encode()):
            self._fail(HTTPStatus.NOT_FOUND)
            return
        rest = parts[2]
        with site.lifetime.request():
            if rest == f"trace/{quote(site.trace.name)}":
                self._trace(site, body=body)
                return
            found = site.assets.find(unquote(rest))
            if found is None:
                self._fail(HTTPStatus.NOT_FOUND)
                return
            path, kind = found
            with path.open("rb") as file:
                self._send(file, kind, path.stat().st_size, body=body)

    def _refusal(self, site: _Site) -> HTTPStatus | None:
        """Why this request is not for us: it was sent to another name, or by another page."""
        if self.headers.get_all("Host", []) not in [[host] for host in site.hosts]:
            return HTTPStatus.MISDIRECTED_REQUEST
        origin = self.headers.get("Origin")
        if origin is not None and origin not in [f"http://{host}" for host in site.hosts]:
            return HTTPStatus.FORBIDDEN
        # A link in another page (a report) may open the UI; a script in it may fetch nothing.
        opened = self.headers.get("Sec-Fetch-Mode") == _NAVIGATION and self.headers.get("Sec-Fetch-Dest") == "document"
        if not opened and self.headers.get("Sec-Fetch-Site", "none") not in _OWN:
            return HTTPStatus.FORBIDDEN
        return None

    def _trace(self, site: _Site, *, body: bool) -> None:
        try:
            file = site.trace.open("rb")
        except OSError:
            self._fail(HTTPStatus.GONE)
            return
        with file:
            # No Content-Encoding: the UI wants the file as it is, compressed or not.
            size = file.seek(0, 2)
            file.seek(0)
            if self._send(file, "application/octet-stream", size, body=body) and body:
                site.lifetime.trace_fetched()

    def _send(self, file: BinaryIO, kind: str, size: int, *, body: bool) -> bool:
        """Whether all of it went out. A file that became shorter meanwhile ends the connection."""
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(size))
        self._common_headers()
        self.end_headers()
        left = size if body else 0
        while left:
            piece = file.read(min(_PIECE, left))
            if not piece:
                self.close_connection = True
                return False
            self.wfile.write(piece)
            left -= len(piece)
        return True

    def _fail(self, status: HTTPStatus) -> None:
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self._common_headers()
        self.end_headers()

    def _common_headers(self) -> None:
        self.send_header("Cache-Control", "no-store")
        self.send_header("Content-Security-Policy", self.server.site.policy)
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        self.send_header("Cross-Origin-Opener-Policy", "same-origin")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("X-Content-Type-Options", "nosniff")
