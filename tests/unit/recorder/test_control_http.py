"""Whatever a client sends, the answer is a JSON sentence, the program goes on, and closing leaves nothing behind."""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import msgspec
import psutil
import pytest

from dsv4prof.errors import InputError, LifetimeError, OutputError, UsageError
from dsv4prof.recorder import control_sockets
from dsv4prof.recorder.control_http import ControlServer
from dsv4prof.recorder.plan import RecordPlan
from dsv4prof.recorder.status import ManagerStatus, SessionResult

LOCAL = {"Host": "localhost"}


def status(state: str = "idle", session: str | None = None) -> ManagerStatus:
    return ManagerStatus(
        state=state, session=session, window=None, steps=0, total_steps=7, saving=0, profilers_alive=0, held_bytes=0,
        last=None,
    )  # fmt: skip


def result(outcome: str = "complete", files: tuple[str, ...] = ("rank0.trace.json.gz",), **more: Any) -> SessionResult:
    fields = {"ended_by": "stop", "reason": None, "steps": 3, "windows": [], **more}
    return SessionResult(session="/s/1", outcome=outcome, files=list(files), **fields)


class Manager:
    """Answers as it is told to, and remembers what it was asked."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.error: Exception | None = None
        self.result = result()
        self.may_end = threading.Event()
        self.may_end.set()
        self.waiting = threading.Semaphore(0)

    def start(
        self, plan: RecordPlan | None = None, *, root: Any = None, name: str | None = None, session: Any = None
    ) -> ManagerStatus:
        self.calls.append((plan, root, name, session))
        self._fail()
        return status("pending", "/s/1")

    def stop(self, *, wait_s: float = 30.0) -> SessionResult:
        self.calls.append(("stop", wait_s))
        self._fail()
        self.waiting.release()
        self.may_end.wait(20)
        return self.result

    def status(self) -> ManagerStatus:
        self._fail()
        return status()

    def _fail(self) -> None:
        if self.error is not None:
            raise self.error


@pytest.fixture
def manager() -> Iterator[Manager]:
    made = Manager()
    yield made
    made.may_end.set()


@pytest.fixture
def server(manager: Manager) -> Iterator[ControlServer]:
    with ControlServer(manager) as made:
        yield made


def ask(
    server: ControlServer, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
) -> tuple[int, dict[str, Any]]:
    host, port = server.url.removeprefix("http://").rsplit(":", 1)
    connection = http.client.HTTPConnection(host.strip("[]"), int(port), timeout=20)
    try:
        connection.request(method, path, body, headers or {})
        response = connection.getresponse()
        data = response.read()
        assert response.getheader("Content-Type") == "application/json"
        return response.status, json.loads(data) if data else {}
    finally:
        connection.close()


def send_raw(server: ControlServer, data: bytes, *, then_close: bool = False) -> bytes:
    with socket.create_connection(("127.0.0.1", int(server.url.rsplit(":", 1)[1])), timeout=20) as connection:
        connection.sendall(data)
        if then_close:
            connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(65536), b""))


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_start_hands_the_plan_over_and_answers_with_the_status(
    server: ControlServer, manager: Manager, method: str
) -> None:
    body = b'{"num_steps": 5, "output_dir": "/data", "profile_id": "x", "activities": ["CPU", "GPU"]}'
    code, answer = ask(server, method, "/start_profile", body)
    assert code == 200
    assert answer["success"] is True
    assert answer["status"]["state"] == "pending"
    assert len(answer["notes"]) == 1
    assert manager.calls == [(RecordPlan(active=5), "/data", "x", None)]


def test_a_start_without_a_body_records_until_stopped(server: ControlServer, manager: Manager) -> None:
    with urllib.request.urlopen(urllib.request.Request(f"{server.url}/start_profile", method="POST")) as response:
        assert json.load(response)["success"] is True
    assert manager.calls == [(RecordPlan(active=None), None, None, None)]


def test_the_servers_own_plan_is_what_a_request_leaves_unsaid(manager: Manager) -> None:
    with ControlServer(manager, plan=RecordPlan(release="keep", with_stack=False)) as server:
        ask(server, "POST", "/start_profile", b'{"num_steps": 2}')
    assert manager.calls[0][0] == RecordPlan(active=2, release="keep", with_stack=False)


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_stop_answers_with_the_result(server: ControlServer, manager: Manager, method: str) -> None:
    code, answer = ask(server, method, "/stop_profile")
    assert (code, answer["success"]) == (200, True)
    assert answer["result"] == msgspec.to_builtins(manager.result)


@pytest.mark.parametrize("files", [(), ("rank0.trace.json.gz",)])
def test_a_stop_whose_recording_is_of_no_use_is_no_success(
    server: ControlServer, manager: Manager, files: tuple[str, ...]
) -> None:
    manager.result = result("failed", files, reason="no operator was recorded")
    code, answer = ask(server, "POST", "/stop_profile")
    assert (code, answer["success"]) == (200, False)
    assert "failed: no operator was recorded" in answer["message"]


def test_a_stop_that_no_step_obeyed_yet_is_accepted(manager: Manager) -> None:
    manager.result = result("recording", ())
    with ControlServer(manager, stop_wait_s=0.25) as server:
        code, answer = ask(server, "POST", "/stop_profile")
    assert code == 202
    assert "no step in 0.25 s" in answer["message"]
    assert manager.calls == [("stop", 0.25)]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (LifetimeError("not recording: idle", hint="start first"), 409),
        (UsageError("impossible"), 400),
        (InputError("no session there"), 400),
        (OutputError("the disk is full", hint="free some"), 507),
        (ZeroDivisionError("a secret of ours"), 500),
    ],
)
@pytest.mark.parametrize("path", ["/start_profile", "/stop_profile"])
def test_every_error_is_a_sentence_and_never_a_traceback(
    server: ControlServer, manager: Manager, error: Exception, code: int, path: str
) -> None:
    manager.error = error
    got, answer = ask(server, "POST", path)
    assert got == code
    assert answer["success"] is False
    if code == 500:
        assert answer["message"] == "internal error: ZeroDivisionError"
    else:
        assert answer["message"] == str(error)
        assert answer.get("hint") == error.hint  # type: ignore[attr-defined]
    manager.error = None
    assert ask(server, "GET", "/health")[0] == 200


def test_status_and_health_say_who_answers(server: ControlServer) -> None:
    code, answer = ask(server, "GET", "/profile_status")
    assert code == 200
    assert (answer["server"], answer["pid"], answer["state"]) == ("dsv4prof", os.getpid(), "idle")
    assert answer["version"]
    assert answer["total_steps"] == 7
    assert ask(server, "GET", "/health")[1]["success"] is True


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("GET", "/", 404),
        ("POST", "/start_profile/", 404),
        ("GET", "/../etc/passwd", 404),
        ("POST", "/profile_status", 405),
        ("PUT", "/start_profile", 405),
        ("DELETE", "/stop_profile", 405),
        ("HEAD", "/health", 405),
        ("OPTIONS", "/start_profile", 405),
        ("BREW", "/start_profile", 405),
        ("BREW", "/coffee", 404),
        ("GET", "/start_profile?num_steps=5", 400),
    ],
)
def test_other_addresses_and_methods(
    server: ControlServer, manager: Manager, method: str, path: str, code: int
) -> None:
    assert ask(server, method, path)[0] == code
    assert manager.calls == []


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Referer": "http://evil.example/page"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Host": "evil.example"}, 403),
        ({"Host": "evil.example:80"}, 403),
        ({"Host": "127.0.0.1.evil.example"}, 403),
        ({"Host": "localhost:1234"}, 200),
        ({"Host": "[::1]:1234"}, 200),
        ({"Sec-Fetch-Site": "none"}, 200),
    ],
)
def test_a_page_in_a_browser_cannot_start_a_profile(
    server: ControlServer, manager: Manager, headers: dict[str, str], code: int
) -> None:
    assert ask(server, "POST", "/start_profile", b"{}", headers)[0] == code
    assert bool(manager.calls) == (code == 200)


def test_a_host_that_was_named_serves_whoever_reaches_it(manager: Manager) -> None:
    with ControlServer(manager, host="0.0.0.0") as server:
        port = int(server.url.rsplit(":", 1)[1])
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        connection.request("POST", "/start_profile", headers={"Host": "gpu-7", "Origin": "http://dashboard"})
        assert connection.getresponse().status == 200
        connection.close()


def test_ipv6_where_there_is_one(manager: Manager) -> None:
    try:
        server = ControlServer(manager, host="::1").start()
    except UsageError:
        pytest.skip("no IPv6 here")
    with server:
        assert server.url.startswith("http://[::1]:")
        assert ask(server, "GET", "/health")[0] == 200


def test_a_body_of_a_mebibyte_is_read_and_a_larger_one_refused(server: ControlServer, manager: Manager) -> None:
    largest = b'{"num_steps": 1}'.ljust(1 << 20)
    assert ask(server, "POST", "/start_profile", largest)[0] == 200
    assert ask(server, "POST", "/start_profile", largest + b" ")[0] == 413
    assert ask(server, "POST", "/start_profile", b"x" * (3 << 20))[0] == 413
    assert ask(server, "POST", "/nowhere", b"x" * (3 << 20))[0] == 404
    assert len(manager.calls) == 1


@pytest.mark.parametrize(
    ("request_text", "code"),
    [
        (b"POST /start_profile HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n{}", 400),
        (b"POST /start_profile HTTP/1.1\r\nHost: localhost\r\nContent-Length: two\r\n\r\n{}", 400),
        (b"POST /start_profile HTTP/1.1\r\nHost: localhost\r\nContent-Length: +2\r\n\r\n{}", 400),
        (b"POST /start_profile HTTP/1.1\r\nHost: localhost\r\nContent-Length:\r\n\r\n", 400),
        (b"POST /start_profile HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}", 400),
        (b"POST /start_profile HTTP/1.1\r\nContent-Length: " + b"9" * 6000 + b"\r\n\r\n{}", 413),
        (b"POST /start_profile HTTP/1.1\r\nContent-Length: 50\r\n\r\n{}", 408),
        (b"POST /start_profile HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", 411),
        (b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\n\r\n", 414),
        (b"GET /health HTTP/9.9\r\n\r\n", 505),
        (b"nonsense\r\n\r\n", 400),
        (b"GET http://[/health HTTP/1.1\r\n\r\n", 400),
        (b"GET /health HTTP/1.1\r\n" + b"".join(b"A%d: x\r\n" % i for i in range(200)) + b"\r\n", 431),
    ],
)
def test_a_request_that_is_none_gets_an_answer(
    server: ControlServer, manager: Manager, request_text: bytes, code: int
) -> None:
    answer = send_raw(server, request_text, then_close=True)
    head, _, body = answer.partition(b"\r\n\r\n")
    text = head or body
    assert (b" %d " % code) in text.split(b"\r\n")[0] or json.loads(answer)["success"] is False
    assert json.loads(body or answer)["success"] is False
    assert manager.calls == []
    assert ask(server, "GET", "/health")[0] == 200


@pytest.mark.parametrize("garbage", [b"", b"\0" * 100, b"\x16\x03\x01\x02\x00\x01\x00\x01", bytes(range(1, 256)) * 2])
def test_garbage_and_silence_harm_nobody(
    server: ControlServer, garbage: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    send_raw(server, garbage, then_close=True)
    assert ask(server, "GET", "/health")[0] == 200
    assert capfd.readouterr().err == ""


def test_slow_clients_lose_their_place(manager: Manager, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_sockets, "READ_PATIENCE_S", 0.3)
    with ControlServer(manager) as server:
        address = ("127.0.0.1", int(server.url.rsplit(":", 1)[1]))
        slow = [socket.create_connection(address) for _ in range(control_sockets.MAX_REQUESTS)]
        for each in slow:
            each.sendall(b"POST /start_profile HTTP/1.1\r\nContent-Length: 2\r\n\r\n{")
        code, answer = _until(lambda: ask(server, "GET", "/health"), lambda got: got[0] == 503)
        assert "requests are being served already" in answer["message"]
        # They go on sending, a byte at a time, and are cut all the same.
        began = time.monotonic()
        code, _ = _until(lambda: ask(server, "GET", "/health"), lambda got: got[0] == 200)
        assert code == 200
        assert time.monotonic() - began < 5
        for each in slow:
            each.close()
    assert manager.calls == []


def test_a_client_that_drips_bytes_is_cut_by_the_whole_requests_time(
    manager: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_sockets, "READ_PATIENCE_S", 0.6)
    with ControlServer(manager) as server, socket.create_connection(
        ("127.0.0.1", int(server.url.rsplit(":", 1)[1])), timeout=20
    ) as client:
        began = time.monotonic()
        with suppress(OSError):
            client.sendall(b"GET /health HTTP/1.1\r\n")
            while time.monotonic() - began < 15:
                client.sendall(b"A: b\r\n")
                time.sleep(0.1)
        assert time.monotonic() - began < 8


def _until(act: Any, good: Any, patience_s: float = 10.0) -> Any:
    end = time.monotonic() + patience_s
    while not good(got := act()) and time.monotonic() < end:
        time.sleep(0.05)
    return got


def test_a_port_or_host_that_cannot_be_used_is_a_usage_error(server: ControlServer, manager: Manager) -> None:
    port = int(server.url.rsplit(":", 1)[1])
    for host, number in (("127.0.0.1", port), ("127.0.0.1", 70_000), ("127.0.0.1", -1), ("no-such-host.invalid", 0)):
        with pytest.raises(UsageError, match="cannot be used"):
            ControlServer(manager, host=host, port=number).start()


def test_states_have_sentences(manager: Manager) -> None:
    server = ControlServer(manager)
    with pytest.raises(LifetimeError, match="not running"):
        _ = server.url
    server.close()
    server.start()
    with pytest.raises(LifetimeError, match="running already"):
        server.start()
    first = server.url
    server.close()
    server.close()
    with pytest.raises(OSError):
        urllib.request.urlopen(f"{first}/health", timeout=5)
    with server.start():
        assert ask(server, "GET", "/health")[0] == 200


def test_closing_while_a_stop_waits_is_bounded_and_leaves_nothing(manager: Manager) -> None:
    me = psutil.Process()
    before = (me.num_fds(), me.num_threads())
    manager.may_end.clear()
    server = ControlServer(manager).start()
    answers: list[Any] = []

    def client() -> None:
        try:
            answers.append(ask(server, "POST", "/stop_profile"))
        except (OSError, http.client.HTTPException) as error:
            answers.append(error)

    clients = [threading.Thread(target=client) for _ in range(3)]
    for each in clients:
        each.start()
    for _ in clients:
        assert manager.waiting.acquire(timeout=10)
    began = time.monotonic()
    server.close()
    assert time.monotonic() - began < 4
    manager.may_end.set()
    for each in clients:
        each.join(10)
    assert len(answers) == 3

    def more() -> tuple[bool, bool]:
        # A thread of an earlier test may end meanwhile.
        return me.num_fds() > before[0], me.num_threads() > before[1]

    assert _until(more, lambda now: not any(now)) == (False, False)


def test_a_stop_that_ends_while_the_server_closes_is_still_answered(manager: Manager) -> None:
    manager.may_end.clear()
    server = ControlServer(manager).start()
    answers: list[Any] = []
    client = threading.Thread(target=lambda: answers.append(ask(server, "POST", "/stop_profile")))
    client.start()
    assert manager.waiting.acquire(timeout=10)
    threading.Timer(0.3, manager.may_end.set).start()
    server.close()
    client.join(10)
    assert answers[0][0] == 200


def test_a_hundred_servers_and_their_requests_leave_no_thread_and_no_descriptor(manager: Manager) -> None:
    me = psutil.Process()
    before = (me.num_fds(), me.num_threads())
    began = time.monotonic()
    for _ in range(100):
        with ControlServer(manager) as server:
            assert ask(server, "GET", "/health")[0] == 200
    assert time.monotonic() - began < 20

    def more() -> tuple[bool, bool]:
        # A thread of an earlier test may end meanwhile.
        return me.num_fds() > before[0], me.num_threads() > before[1]

    assert _until(more, lambda now: not any(now)) == (False, False)


def test_requests_at_the_same_time_are_all_answered(server: ControlServer) -> None:
    codes: list[int] = []

    def client() -> None:
        for _ in range(10):
            codes.append(ask(server, "POST", "/start_profile", b'{"num_steps": 1}')[0])

    clients = [threading.Thread(target=client) for _ in range(6)]
    for each in clients:
        each.start()
    for each in clients:
        each.join()
    assert codes == [200] * 60


FORKED = """
import os, sys, time, urllib.request, json
from dsv4prof.recorder.control_http import ControlServer
class Manager:
    def status(self): raise ZeroDivisionError
server = ControlServer(Manager()).start()
url = server.url
pid = os.fork()
if pid == 0:
    # Neither served nor held: after the parent is gone the port is free.
    links = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
    held = [link for link in links if os.path.islink(link) and "socket" in os.readlink(link)]
    server.close()
    try:
        server.url
    except Exception as error:
        print("child:", error, held, flush=True)
    time.sleep(1.0)
    os._exit(7)
print(json.load(urllib.request.urlopen(url + "/health"))["pid"] == os.getpid(), flush=True)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
print(json.load(urllib.request.urlopen(url + "/health"))["pid"] == os.getpid())
"""


def test_the_child_of_a_fork_neither_serves_nor_holds_the_port() -> None:
    child = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, check=False, timeout=60)
    assert child.returncode == 0, child.stderr
    assert child.stderr == ""
    assert "child: the control server is not running []" in child.stdout
    assert child.stdout.count("True") == 2
    assert "\n7\n" in child.stdout


def test_a_program_that_forgets_to_close_exits_as_it_would_without() -> None:
    code = """
import socket, sys
from dsv4prof.recorder.control_http import ControlServer
server = ControlServer(object()).start()
idle = socket.create_connection(("127.0.0.1", int(server.url.rsplit(":", 1)[1])))
sys.exit(5)
"""
    began = time.monotonic()
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert (child.returncode, child.stderr) == (5, "")
    assert time.monotonic() - began < 8
