"""HTTP to whatever is at an address: one answer or one sentence."""

from __future__ import annotations

import socket
import threading
import time

import pytest

from dsv4prof.errors import InputError, UsageError
from dsv4prof.target.remote.client import Answer, NoAnswerError, UrlClient, is_loopback, normalized
from dsv4prof.target.remote.facts import ask_facts
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


@pytest.mark.parametrize("header", [b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n", b"", b"HTTP/1.1 500 X\r\n\r\n"])
def test_an_answer_that_trickles_in_has_one_deadline(raw_port: socket.socket, header: bytes) -> None:
    over = threading.Event()

    def trickle() -> None:
        connection, _ = raw_port.accept()
        connection.recv(1000)
        connection.sendall(header)
        while not over.wait(0.1):
            try:
                connection.sendall(b"H")
            except OSError:
                return

    thread = threading.Thread(target=trickle)
    thread.start()
    began = time.monotonic()
    with pytest.raises(NoAnswerError, match=r"did not answer within 0\.6 s") as refused:
        UrlClient(_url(raw_port)).get("/", timeout=0.6)
    assert refused.value.slow
    assert time.monotonic() - began < 5
    over.set()
    thread.join()


@pytest.mark.parametrize("given", ["http://" + "a" * 70 + ".com", "http://a..b", "http://h/\u00e9", "http://h\x07"])
def test_a_bad_address_is_blamed_and_not_a_server(given: str) -> None:
    with pytest.raises(UsageError, match="no server's address"):
        UrlClient(given)


@pytest.mark.parametrize("given", ["ftp://me:pw@h", "http://me:pw@h:99999", "me:pw@h:99999/x?k=pw", "http://a b?k=pw"])
def test_what_is_secret_in_a_bad_address_is_not_repeated(given: str) -> None:
    with pytest.raises(UsageError) as refused:
        UrlClient(given)
    assert "pw" not in refused.value.message + (refused.value.hint or "")


@pytest.mark.parametrize("key", ["", "a\nb", "sch\u00fcssel", "\x00"])
def test_a_bad_key_is_blamed_and_not_repeated(key: str) -> None:
    with pytest.raises(UsageError, match="the API key") as refused:
        UrlClient("h:1", api_key=key)
    assert not key or key not in refused.value.message


@pytest.mark.parametrize(
    ("answer", "why"),
    [((200, b"<html>hi</html>"), "a web page"), ((302, b""), "a redirect"), ((500, b"boom"), "HTTP 500"),
     ((200, [1, [2]]), "JSON that says nothing"), ((200, b"\xff"), "no JSON"), ((404, {"e": 1}), "it has none of")],
)  # fmt: skip
def test_what_is_no_serving_engine_is_said_to_be_none(answer, why: str) -> None:
    paths = ("/profile_status", "/server_info", "/get_server_info", "/model_info", "/version", "/v1/models")
    answers = {base + path: answer for path in paths for base in ("", "/base")}
    with FakeServer(answers=answers) as server:
        with pytest.raises(UsageError, match="is no serving engine") as refused:
            ask_facts(UrlClient(server.url))
        assert why in refused.value.message
        if answer[0] == 404:
            with pytest.raises(UsageError) as refused:
                ask_facts(UrlClient(server.url + "/base"))
            assert refused.value.hint == f"{server.url} without the path?"


def test_a_servers_words_cannot_steer_a_terminal() -> None:
    info = {"version": "\x1b[31m9\x07", "served_model_name": "m\u202e", "speculative_algorithm": "E\x1b]0;x"}
    with FakeServer(info=info, answers={"/model_info": (404, {})}) as server:
        words = ask_facts(UrlClient(server.url)).words()
    assert words.isprintable()
    assert Answer(500, b"a\x1b[2Jb").text.isprintable()


def test_more_ranks_than_there_can_be_are_refused() -> None:
    with FakeServer(info={"tp_size": 4096, "dp_size": 4096}) as server, pytest.raises(InputError, match="65536 ranks"):
        ask_facts(UrlClient(server.url))
