"""HTTP to whatever is at an address: one answer or one sentence."""

from __future__ import annotations

import socket
import threading

import pytest

from dsv4prof.errors import UsageError
from dsv4prof.target.remote.client import NoAnswerError, UrlClient, is_loopback, normalized
from fake_server import FakeServer


@pytest.fixture
def raw_port() -> socket.socket:
    listener = socket.create_server(("127.0.0.1", 0))
    yield listener
    listener.close()


def _url(listener: socket.socket) -> str:
    return f"http://127.0.0.1:{listener.getsockname()[1]}"


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("127.0.0.1:30000", "http://127.0.0.1:30000"),
        ("http://host:1/", "http://host:1"),
        ("https://host/base/", "https://host/base"),
        ("http://[::1]:30000", "http://[::1]:30000"),
    ],
)
def test_addresses_are_taken_as_they_are_typed(given: str, meant: str) -> None:
    assert normalized(given) == meant


@pytest.mark.parametrize("given", ["", "ftp://host", "http://", "http://h:99999", "http://a b", "http://[::1", "x:y"])
def test_what_is_no_address_is_refused(given: str) -> None:
    with pytest.raises(UsageError, match="no server's address"):
        normalized(given)


def test_a_password_in_an_address_is_not_repeated() -> None:
    with pytest.raises(UsageError) as refused:
        normalized("http://me:secret@host")
    assert "secret" not in refused.value.message


@pytest.mark.parametrize(
    ("host", "own"), [("localhost", True), ("127.9.9.9", True), ("::1", True), ("10.0.0.1", False), ("host", False)]
)
def test_loopback_is_told_by_form(host: str, own: bool) -> None:
    assert is_loopback(host) is own


def test_nobody_there_is_one_sentence(raw_port: socket.socket) -> None:
    url = _url(raw_port)
    raw_port.close()
    with pytest.raises(NoAnswerError, match="no server at") as refused:
        UrlClient(url).get("/", timeout=2)
    assert refused.value.exit_code == 2
    assert not refused.value.slow


def test_what_speaks_no_http_is_one_sentence(raw_port: socket.socket) -> None:
    def greet() -> None:
        connection, _ = raw_port.accept()
        connection.recv(1000)
        connection.sendall(b"SSH-2.0-OpenSSH_9.6\r\n")
        connection.close()

    thread = threading.Thread(target=greet)
    thread.start()
    with pytest.raises(NoAnswerError, match="not in HTTP"):
        UrlClient(_url(raw_port)).get("/", timeout=2)
    thread.join()


def test_a_server_that_closes_at_once_is_one_sentence(raw_port: socket.socket) -> None:
    def hang_up() -> None:
        raw_port.accept()[0].close()

    thread = threading.Thread(target=hang_up)
    thread.start()
    with pytest.raises(NoAnswerError):
        UrlClient(_url(raw_port)).get("/", timeout=2)
    thread.join()


def test_a_server_that_hangs_is_left_after_the_time(raw_port: socket.socket) -> None:
    with pytest.raises(NoAnswerError, match=r"did not answer within 0\.3 s") as refused:
        UrlClient(_url(raw_port)).get("/", timeout=0.3)
    assert refused.value.slow


def test_a_proxy_is_not_asked_for_this_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    with FakeServer() as server:
        assert UrlClient(server.url).get("/model_info", timeout=5).ok


def test_the_key_goes_to_the_server_and_not_on_to_another() -> None:
    with FakeServer(api_key="k") as server:
        assert UrlClient(server.url).get("/model_info", timeout=5).status == 401
        assert UrlClient(server.url, api_key="k").get("/model_info", timeout=5).status == 200
    with FakeServer(answers={"/there": (302, b"")}) as server:
        assert UrlClient(server.url, api_key="k").get("/there", timeout=5).status == 302


def test_a_body_that_is_no_object_reads_as_none() -> None:
    with FakeServer(answers={"/list": (200, [1]), "/broken": (200, b"{")}) as server:
        client = UrlClient(server.url)
        assert client.get("/list", timeout=5).object() == {}
        assert client.get("/broken", timeout=5).json() is None
