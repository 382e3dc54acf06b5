"""HTTP to a server that may be down, may be something else, or may hang: one answer or one sentence.

Only the standard library: attaching must work on a machine that has nothing installed but this package.
"""

from __future__ import annotations

import http.client
import ipaddress
import json
import ssl
import urllib.error
import urllib.request
from typing import Any, Protocol
from urllib.parse import urlsplit

import msgspec

from dsv4prof.errors import UsageError
from dsv4prof.target.remote.deadline import Deadline, HttpsWithDeadline, HttpWithDeadline

# Enough for any server's description of itself; more is no answer that we asked for.
_MOST_BYTES = 32 << 20


class Answer(msgspec.Struct, frozen=True):
    """A server's answer, whatever its status."""

    status: int
    body: bytes

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300

    @property
    def text(self) -> str:
        """The first line of the body, for a message."""
        lines = self.body[:400].decode("utf-8", "replace").strip().splitlines()
        return printable(lines[0]) if lines else ""

    def json(self) -> Any:
        """The body as JSON; None when it is none."""
        try:
            return msgspec.json.decode(self.body)
        except (msgspec.DecodeError, RecursionError):
            return None

    def object(self) -> dict[str, Any]:
        """The body as a JSON object; empty when it is none."""
        found = self.json()
        return found if isinstance(found, dict) else {}


class NoAnswerError(UsageError):
    """Nobody answered, or what answered speaks no HTTP; `slow` when it was a matter of time."""

    def __init__(self, message: str, *, hint: str, slow: bool = False) -> None:
        super().__init__(message, hint=hint)
        self.slow = slow


class Client(Protocol):
    """What attaching needs of HTTP. `url` has no slash at its end."""

    url: str

    def get(self, path: str, *, timeout: float) -> Answer: ...

    def post(self, path: str, body: object = None, *, timeout: float) -> Answer: ...


class UrlClient:
    """A client of one server. Raises UsageError for an address or a key that is none, NoAnswerError without an answer.

    A `timeout` is for the whole answer: one that trickles would else never end.
    """

    def __init__(self, url: str, *, api_key: str | None = None) -> None:
        self.url = normalized(url)
        self._headers = {} if api_key is None else {"Authorization": f"Bearer {_checked(api_key)}"}
        proxies: dict[str, str] | None = {} if is_loopback(host_of(self.url)) else None
        # A redirect would carry the key to another server, and turn a POST into a GET.
        self._open = urllib.request.build_opener(
            urllib.request.ProxyHandler(proxies), _NoRedirect, HttpWithDeadline, HttpsWithDeadline
        ).open

    def get(self, path: str, *, timeout: float) -> Answer:
        return self._ask(urllib.request.Request(self.url + path, headers=self._headers), timeout)

    def post(self, path: str, body: object = None, *, timeout: float) -> Answer:
        data = b"" if body is None else json.dumps(body).encode()
        headers = self._headers if body is None else {**self._headers, "Content-Type": "application/json"}
        return self._ask(urllib.request.Request(self.url + path, data, headers, method="POST"), timeout)

    def _ask(self, request: urllib.request.Request, timeout: float) -> Answer:
        with Deadline(timeout) as deadline:
            request.deadline = deadline  # type: ignore[attr-defined]
            try:
                answer = self._answer(request, timeout)
            except NoAnswerError:
                # What the deadline broke off looks like a server that hung up.
                if deadline.passed:
                    raise self._slow(timeout) from None
                raise
        if deadline.passed:
            raise self._slow(timeout)
        return answer

    def _answer(self, request: urllib.request.Request, timeout: float) -> Answer:
        try:
            with self._open(request, timeout=timeout) as response:
                return Answer(response.status, response.read(_MOST_BYTES))
        except urllib.error.HTTPError as error:
            with error:
                return Answer(error.code, _rest(error))
        except TimeoutError:
            raise self._slow(timeout) from None
        except urllib.error.URLError as error:
            if isinstance(error.reason, TimeoutError):
                raise self._slow(timeout) from None
            raise self._absent(error.reason) from None
        except ConnectionError as error:
            raise self._absent(error) from None
        except (http.client.HTTPException, ValueError) as error:
            raise NoAnswerError(
                f"{self.url} answers, but not in HTTP ({type(error).__name__})", hint="is it another program's port?"
            ) from None
        except OSError as error:
            raise self._absent(error) from None

    def _slow(self, timeout: float) -> NoAnswerError:
        return NoAnswerError(
            f"{self.url} did not answer within {timeout:g} s", hint="is it starting, or busy exporting?", slow=True
        )

    def _absent(self, reason: object) -> NoAnswerError:
        if isinstance(reason, ssl.SSLError):
            return NoAnswerError(
                f"{self.url}: no encrypted connection ({reason.reason or reason})", hint="http:// instead of https://?"
            )
        words = (isinstance(reason, OSError) and reason.strerror) or str(reason) or "the connection broke"
        return NoAnswerError(f"no server at {self.url}: {words}", hint="start it first, or check host and port")


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object, **__: object) -> None:
        return None


def _rest(error: urllib.error.HTTPError) -> bytes:
    try:
        return error.read(_MOST_BYTES)
    except (OSError, http.client.HTTPException):
        return b""


def printable(text: str, *, most: int = 200) -> str:
    """Another program's words on one line: what would steer a terminal, or fill it, is left out."""
    return "".join(character if character.isprintable() else "\ufffd" for character in text[:most])


def without_secrets(url: str) -> str:
    """An address as it may be repeated: no user, no password, no query."""
    start, mark, rest = url.partition("://") if "://" in url else ("", "", url)
    return start + mark + rest.partition("?")[0].rpartition("@")[2]


def normalized(url: str) -> str:
    """`127.0.0.1:30000/` as `http://127.0.0.1:30000`. Raises UsageError when it names no HTTP server."""
    whole = (url if "://" in url else f"http://{url}").strip()
    try:
        parts = urlsplit(whole)
        host = parts.hostname or ""
        host.encode("idna")
        fine = parts.scheme in ("http", "https") and bool(host) and (parts.port is None or parts.port > 0)
    except ValueError:
        # Also a UnicodeError: a label of a host's name is empty or too long.
        fine = False
    if not fine or any(character.isspace() or not character.isprintable() for character in whole):
        raise UsageError(f"{without_secrets(url)!r} is no server's address", hint="for example http://127.0.0.1:30000")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise UsageError(f"{parts.hostname}: an address of a server has no user, query or fragment", hint="--api-key")
    if not parts.path.isascii():
        raise UsageError(f"{whole!r} is no server's address: its path is not ASCII", hint="percent-encode the path")
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"


def _checked(api_key: str) -> str:
    """Raises UsageError, without the key, for one that no header can hold."""
    if not api_key or not api_key.isascii() or not api_key.isprintable():
        what = "is empty" if not api_key else "has a character that HTTP cannot send"
        raise UsageError(f"the API key {what}", hint="--api-key KEY; - reads it from stdin")
    return api_key


def host_of(url: str) -> str:
    return urlsplit(url).hostname or ""


def netloc_of(url: str) -> str:
    return urlsplit(url).netloc


def path_of(url: str) -> str:
    return urlsplit(url).path


def port_of(url: str) -> int:
    parts = urlsplit(url)
    return parts.port or (443 if parts.scheme == "https" else 80)


def is_loopback(host: str) -> bool:
    """Whether a name is this host's own, by its form alone."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
