"""What the view server gives, to whom, and what it refuses."""

from __future__ import annotations

import http.client
import os
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from dsv4prof.errors import InputError, UsageError
from dsv4prof.view.lifetime import Lifetime
from dsv4prof.view.server import ViewServer

CONTENT = b"\x1f\x8b" + bytes(range(256)) * 3000


@pytest.fixture
def ui(tmp_path: Path) -> Path:
    folder = tmp_path / "ui"
    (folder / "v1" / "assets").mkdir(parents=True)
    (folder / "index.html").write_text("<html><script>go()</script></html>")
    (folder / "v1" / "engine.wasm").write_bytes(b"\0asm")
    (folder / "v1" / "front.js").write_text("1")
    (folder / "v1" / "assets" / "a.woff2").write_text("f")
    (folder / "trace_processor").write_text("#!/bin/sh")
    (folder / "v1" / "link.js").symlink_to("/etc/passwd")
    (tmp_path / "secret.json").write_text("{}")
    return folder


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "my trace.json.gz"
    path.write_bytes(CONTENT)
    return path


@pytest.fixture
def server(ui: Path, trace: Path) -> Iterator[ViewServer]:
    with ViewServer(trace, ui, Lifetime(60, 600)) as running:
        yield running


def ask(server: ViewServer, path: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
    """A request whose path is sent as it is."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    connection.putrequest(method, path, skip_host="Host" in headers, skip_accept_encoding=True)
    for key, value in headers.items():
        connection.putheader(key.replace("_", "-"), value)
    connection.endheaders()
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, {key.lower(): value for key, value in answer.getheaders()}, body


def test_the_trace_is_sent_as_it_lies_on_the_disk(server: ViewServer) -> None:
    status, headers, body = ask(server, f"/{server.token}/trace/my%20trace.json.gz", Accept_Encoding="gzip")
    assert (status, body) == (200, CONTENT)
    assert headers["content-type"] == "application/octet-stream"
    assert "content-encoding" not in headers


@pytest.mark.parametrize(
    ("path", "kind"),
    [("", "text/html; charset=utf-8"), ("index.html", "text/html; charset=utf-8"),
     ("v1/engine.wasm", "application/wasm"), ("v1/front.js", "text/javascript; charset=utf-8"),
     ("v1/assets/a.woff2", "font/woff2"), ("v1/front.js?v=1", "text/javascript; charset=utf-8")],
)  # fmt: skip
def test_files_of_the_ui_have_the_types_that_make_them_run(path: str, kind: str, server: ViewServer) -> None:
    status, headers, _ = ask(server, f"/{server.token}/{path}")
    assert (status, headers["content-type"]) == (200, kind)


def test_the_pages_rules_keep_the_ui_from_calling_home(server: ViewServer) -> None:
    rules = ask(server, f"/{server.token}/")[1]["content-security-policy"]
    assert "connect-src 'self' data: blob:;" in rules
    assert "http" not in rules
    # sha256 of `go()`: the page's own script runs, and no other one that stands in a page.
    assert "'sha256-5KYv+PUboo5h+0+YAtGRPbwv5d/QxzHslP4YGnUaxRw='" in rules
    assert "script-src 'self' 'unsafe-eval' 'sha256-" in rules
    assert "'unsafe-inline'" not in rules.partition("script-src")[2].partition(";")[0]


@pytest.mark.parametrize("path", ["", "trace/my%20trace.json.gz", "v1/engine.wasm"])
def test_head_is_get_without_a_body(path: str, server: ViewServer) -> None:
    status, headers, body = ask(server, f"/{server.token}/{path}", "HEAD")
    _, wanted, whole = ask(server, f"/{server.token}/{path}")
    assert (status, body) == (200, b"")
    assert headers["content-length"] == wanted["content-length"] == str(len(whole))


@pytest.mark.parametrize(
    "path",
    ["/", "/index.html", "/trace/my%20trace.json.gz", "/TOKEN", "/TOKE/", "/TOKENx/", "/TOKEN/v1/", "/TOKEN/v1",
     "/TOKEN/trace/", "/TOKEN/trace/other.json", "/TOKEN/../secret.json", "/TOKEN/%2e%2e/secret.json",
     "/TOKEN/v1/../../secret.json", "/TOKEN/v1/..%2f..%2fsecret.json", "/TOKEN//etc/passwd", "/TOKEN/trace_processor",
     "/TOKEN/v1/link.js", "/TOKEN/trace/..%2fsecret.json", "/TOKEN/%ff", "/[", "*"],
)  # fmt: skip
def test_there_is_nothing_else(path: str, server: ViewServer) -> None:
    status, _, body = ask(server, path.replace("TOKEN", server.token).replace("TOKE/", server.token[:-1] + "/"))
    assert (status, body) == (404, b"")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 421),
        ({"Host": "127.0.0.1"}, 421),
        ({"Host": "127.0.0.1:1"}, 421),
        ({"Host": "localhost:PORT"}, 200),
        ({"Origin": "http://127.0.0.1:PORT"}, 200),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "http://127.0.0.1:1"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec_Fetch_Site": "same-origin", "Sec_Fetch_Mode": "cors"}, 200),
        ({"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "no-cors", "Sec_Fetch_Dest": "script"}, 403),
        ({"Sec_Fetch_Site": "same-site", "Sec_Fetch_Mode": "cors", "Sec_Fetch_Dest": "empty"}, 403),
        ({"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "iframe"}, 403),
        ({"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "document"}, 200),
    ],
)
def test_only_its_own_page_and_whoever_follows_the_link(
    headers: dict[str, str], status: int, server: ViewServer
) -> None:
    sent = {key: value.replace("PORT", str(server.port)) for key, value in headers.items()}
    answer, back, _ = ask(server, f"/{server.token}/", **sent)
    assert answer == status
    assert not [key for key in back if key.startswith("access-control-")]
    assert back["cross-origin-resource-policy"] == "same-origin"


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_it_takes_nothing(method: str, server: ViewServer) -> None:
    assert ask(server, f"/{server.token}/", method)[0] == 501


def test_it_listens_on_the_loopback_alone(server: ViewServer) -> None:
    assert server._http.server_address[0] == "127.0.0.1"


def test_a_big_trace_does_not_pass_through_memory(ui: Path, tmp_path: Path) -> None:
    path, size = tmp_path / "big.json", 96 << 20
    with path.open("wb") as file:
        file.truncate(size)
    with ViewServer(path, ui, Lifetime(60, 600)) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
        tracemalloc.start()
        connection.request("GET", f"/{server.token}/trace/big.json")
        answer, got = connection.getresponse(), 0
        while piece := answer.read(1 << 16):
            got += len(piece)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert got == size
    assert peak < 4 << 20


def test_a_transfer_that_breaks_off_is_not_a_trace_that_was_fetched(ui: Path, tmp_path: Path) -> None:
    path = tmp_path / "big.json"
    with path.open("wb") as file:
        file.truncate(64 << 20)
    life = Lifetime(0, 600)
    with ViewServer(path, ui, life) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
        connection.request("GET", f"/{server.token}/trace/big.json")
        connection.getresponse().read(1000)
        connection.close()
        deadline = time.monotonic() + 10
        while life._active and time.monotonic() < deadline:
            time.sleep(0.01)
        assert life.over() is None
        assert ask(server, f"/{server.token}/trace/big.json", "HEAD")[0] == 200
        assert life.over() is None
        assert life.fetched == 0
        assert len(ask(server, f"/{server.token}/trace/big.json")[2]) == 64 << 20
        assert life.fetched == 1


def test_foreign_requests_do_not_keep_it_alive(server: ViewServer) -> None:
    life = server._http.site.lifetime
    ask(server, "/live_reload")
    ask(server, f"/{server.token}/", Host="evil.example")
    assert life.requests == 0


def test_a_trace_that_vanished_is_gone(server: ViewServer, trace: Path) -> None:
    trace.unlink()
    assert ask(server, f"/{server.token}/trace/my%20trace.json.gz")[0] == 410


def test_what_cannot_be_served_is_said_at_once(ui: Path, trace: Path, server: ViewServer) -> None:
    with pytest.raises(UsageError, match=f"cannot serve on port {server.port}"):
        ViewServer(trace, ui, Lifetime(1, 1), port=server.port)
    with pytest.raises(InputError, match="cannot read"):
        ViewServer(trace.with_name("none.json"), ui, Lifetime(1, 1))


def test_closing_lets_the_port_go(ui: Path, trace: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    server = ViewServer(trace, ui, Lifetime(1, 1))
    first = server.port, server.token
    server.close()
    assert len(os.listdir("/proc/self/fd")) == before
    with ViewServer(trace, ui, Lifetime(1, 1), port=first[0]) as again:
        assert again.port == first[0]
        assert again.token != first[1]
