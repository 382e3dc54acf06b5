"""Requests whose clients go, queues that are full, an engine that fails, a server that ends: nothing is left behind."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from dsv4_engine.errors import EngineError
from dsv4_engine.request import SamplingParams
from dsv4_engine.server.commands import Commands, RankEngine, follow
from dsv4_engine.server.engine_thread import EngineThread
from dsv4_engine.server.generation import Generation
from dsv4_engine.server.listen import bind
from dsv4_engine.server.options import ServerOptions
from fake_engine import FakeEngine
from served import serving

SLOW = {"prompt": "ab", "max_tokens": 10_000, "ignore_eos": True}


def slow():
    return FakeEngine(step_s=0.02)


def until(holds, timeout=5.0):
    end = time.monotonic() + timeout
    while not holds():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


def idle(server):
    return not server.engine.requests and server.service.engine.outstanding == 0


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_hangs_up_takes_its_request_along(stream):
    with serving(slow) as server:
        body = json.dumps({**SLOW, "stream": stream}).encode()
        head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
        host, port = server.url.removeprefix("http://").split(":")
        connection = socket.create_connection((host, int(port)))
        connection.sendall(head.encode() + body)
        until(lambda: server.engine.steps > 1)
        connection.close()
        until(lambda: idle(server))
        assert server.engine.aborted == [0]
        assert 'requests_total{reason="abort"} 1' in server.client.get("/metrics").text


def test_a_client_that_hangs_up_before_its_first_token():
    with serving() as server:
        server.engine.gate.clear()
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(server.url + "/v1/completions", json=SLOW, timeout=0.2, trust_env=False)
        server.engine.gate.set()
        until(lambda: idle(server))


def test_beyond_the_queues_limit_clients_are_told_to_come_again():
    with serving(slow, max_outstanding=2) as server, ThreadPoolExecutor(2) as pool:
        body = {**SLOW, "max_tokens": 60}
        running = [pool.submit(httpx.post, server.url + "/v1/completions", json=body, trust_env=False) for _ in "ab"]
        until(lambda: server.service.engine.outstanding == 2)
        refused = server.complete()
        assert refused.status_code == 429 and refused.headers["retry-after"] == "1"
        assert refused.json()["error"]["code"] == "queue_full"
        assert [future.result().status_code for future in running] == [200, 200]
        assert server.complete().status_code == 200
        never = server.complete(n=3)
        assert never.status_code == 400 and "2 are the most at a time" in never.json()["error"]["message"]


def test_a_failed_engine_fails_every_request_and_the_health():
    with serving(lambda: FakeEngine(fail_at=2)) as server:
        answer = server.complete(max_tokens=100)
        assert answer.status_code == 500 and "the device is gone" in answer.json()["error"]["message"]
        for path in ("/health", "/health_generate", "/metrics", "/server_info"):
            assert server.client.get(path).status_code == 503, path
        assert server.complete().status_code == 503
        assert server.client.get("/v1/models").status_code == 200


def test_a_stream_that_fails_half_way_ends_with_the_error():
    with serving(lambda: FakeEngine(fail_at=2)) as server:
        answer = server.complete(max_tokens=100, stream=True)
        parts = [line.removeprefix("data: ") for line in answer.text.split("\n\n") if line]
        assert answer.status_code == 200 and parts[-1] == "[DONE]"
        assert json.loads(parts[-2])["error"]["code"] == "engine_failed"


def test_an_ending_server_lets_requests_finish_within_its_grace():
    with serving(slow, grace_s=5) as server, ThreadPoolExecutor(1) as pool:
        future = pool.submit(
            httpx.post, server.url + "/v1/completions", json={**SLOW, "max_tokens": 30}, trust_env=False
        )
        until(lambda: server.engine.steps > 1)
        asyncio.run(server.service.engine.close(grace_s=5))
        assert future.result().json()["usage"]["completion_tokens"] == 30
        assert server.complete().status_code == server.client.get("/health").status_code == 503


def test_an_ending_server_answers_what_it_does_not_finish():
    with ThreadPoolExecutor(2) as pool:
        with serving(slow, grace_s=0.1) as server:
            stream = pool.submit(
                httpx.post, server.url + "/v1/completions", json={**SLOW, "stream": True}, trust_env=False
            )
            whole = pool.submit(httpx.post, server.url + "/v1/completions", json=SLOW, trust_env=False)
            until(lambda: server.service.engine.outstanding == 2)
        assert whole.result().status_code == 503 and whole.result().json()["error"]["code"] == "shutting_down"
        assert '"code":"shutting_down"' in stream.result().text


def test_a_taken_port_is_one_sentence():
    with bind(ServerOptions()) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(EngineError, match=f"port {port} on 127.0.0.1 cannot be used"):
            bind(ServerOptions(port=port))
    with pytest.raises(EngineError, match="cannot be used"):
        bind(ServerOptions(host="no.such.host.invalid"))


@pytest.mark.parametrize(
    "wrong", [{"port": 70000}, {"api_key": ""}, {"api_key": "ü"}, {"max_queue": -1}, {"grace_s": -1}]
)
def test_options_out_of_range_are_refused(wrong):
    with pytest.raises(EngineError):
        ServerOptions(**wrong)


def test_an_engine_that_cannot_be_made_says_so_to_whoever_starts_it():
    def broken():
        raise EngineError("no such model", hint="look")

    with pytest.raises(EngineError, match="no such model"):
        EngineThread(broken, max_outstanding=1).start()


def test_whoever_starts_an_engine_can_give_up_waiting():
    never = threading.Event()

    def look():
        raise EngineError("another rank is gone")

    with pytest.raises(EngineError, match="another rank is gone"):
        EngineThread(lambda: never.wait(30), max_outstanding=1).start(look)
    never.set()


def test_an_idle_engine_thread_uses_no_time():
    with serving() as server:
        server.complete()
        began = time.process_time()
        time.sleep(0.3)
        assert time.process_time() - began < 0.1


def test_an_observer_is_called_after_steps_and_while_it_waits():
    class Observer:
        steps = polls = 0

        def after_step(self):
            self.steps += 1

        def poll(self):
            self.polls += 1
            return self.polls < 3

        def end(self):
            self.ended = threading.current_thread().name

    observer = Observer()
    heard = []
    engine = EngineThread(FakeEngine, max_outstanding=4, observer=observer, on_message=heard.append)
    engine.start()

    async def use():
        engine.attach(asyncio.get_running_loop())
        (ticket,) = engine.submit([Generation(prompt=(5, 6), max_new_tokens=5, sampling=SamplingParams())])
        while (await ticket.updates.get())[1].finish is None:
            pass
        engine.tell_ranks(b"hello")
        for _ in range(100):
            await asyncio.sleep(0.01)
            if observer.polls >= 3:
                break
        await engine.close(grace_s=0)

    asyncio.run(use())
    assert observer.steps == 2 and observer.polls >= 3 and heard == [b"hello"]
    assert observer.ended == "dsv4-engine"


class _Recorded:
    """A channel that keeps what rank 0 sends."""

    heartbeat_s = 0.01

    def __init__(self):
        self.sent = []

    def send(self, commands):
        self.sent.append(commands)

    def receive(self):
        return self.sent.pop(0)


def test_other_ranks_do_the_same_as_the_first():
    channel, engines = _Recorded(), []

    def make():
        engines.append(FakeEngine(context=50, step_s=0.002))
        return engines[0]

    engine = EngineThread(make, max_outstanding=64, channel=channel)
    engine.start()

    async def use():
        engine.attach(asyncio.get_running_loop())
        wanted = [
            Generation(prompt=tuple(range(5, 5 + length)), max_new_tokens=20, sampling=SamplingParams())
            for length in (2, 3, 60, 4, 5, 6)
        ]
        tickets = engine.submit(wanted)
        for _ in range(4):
            await tickets[0].updates.get()
        engine.withdraw(tickets[1])
        while engine.outstanding:
            await asyncio.sleep(0.005)
        await asyncio.sleep(0.05)
        await engine.close(grace_s=1)

    asyncio.run(use())
    assert Commands() in channel.sent, "an idle rank 0 has to be heard"
    other = FakeEngine(context=50)
    follow(other, channel)
    assert other.steps == engines[0].steps and not other.requests and not engines[0].requests
    assert [added["prompt"] for added in other.added] == [added["prompt"] for added in engines[0].added]
    assert other.aborted == engines[0].aborted == [1] and not channel.sent


def test_withdrawn_requests_are_forgotten_at_once():
    engine = RankEngine(FakeEngine())
    wanted = Generation(prompt=(5, 6), max_new_tokens=5, sampling=SamplingParams())
    (first, second), _ = engine.obey(Commands(adds=(wanted, wanted)))
    engine.obey(Commands(aborts=(first,)))
    assert set(engine._engine.requests) == {second}
    while engine.has_work:
        results = engine.step().results
    assert set(results) == {second} and not engine._engine.requests


def test_many_clients_at_once_get_their_own_answers():
    with serving(max_outstanding=500) as server, ThreadPoolExecutor(16) as pool:

        def one(number):
            text = f"<{number}>"
            body = {"prompt": text, "max_tokens": 3 * len(text), "stream": number % 2 == 0, "temperature": 0}
            with httpx.Client(base_url=server.url, trust_env=False, timeout=30) as client:
                answer = client.post("/v1/completions", json=body)
            if number % 2:
                return answer.json()["choices"][0]["text"] == text * 3
            parts = [json.loads(line[6:]) for line in answer.text.split("\n\n") if line and "[DONE]" not in line]
            return "".join(part["choices"][0]["text"] for part in parts) == text * 3

        assert all(pool.map(one, range(100)))
        assert idle(server) and threading.active_count() < 60


def test_an_engine_that_others_know_to_be_lost_keeps_nobody_waiting():
    with serving() as server, ThreadPoolExecutor(1) as pool:
        server.engine.gate.clear()
        waiting = pool.submit(server.complete, max_tokens=100)
        until(lambda: server.service.engine.outstanding == 1)
        server.service.engine.fail("rank 1 ended with status -9")
        assert waiting.result(5).status_code == 500 and "rank 1 ended" in waiting.result().text
        assert server.client.get("/health").status_code == 503
        server.engine.gate.set()


def test_a_connection_that_asks_nothing_is_closed(monkeypatch):
    monkeypatch.setattr("dsv4_engine.server.connection.HEAD_S", 0.2)
    with serving(slow) as server:
        address = server.url.removeprefix("http://").split(":")
        half = b"GET /health HTTP/1.1\r\nHost: local"
        silent, slow_head, second = (socket.create_connection((address[0], int(address[1])), timeout=5) for _ in "abc")
        slow_head.sendall(half)
        second.sendall(half + b"host\r\n\r\n")
        answer = b""
        while b'"ok"' not in answer:
            answer += second.recv(4096)
        second.sendall(half)
        # An answer may take as long as it takes.
        assert server.complete(max_tokens=25, ignore_eos=True).json()["usage"]["completion_tokens"] == 25
        assert [each.recv(1) for each in (silent, slow_head, second)] == [b"", b"", b""]
        for each in (silent, slow_head, second):
            each.close()
