"""`dsv4prof serve` as its users meet it: an address, answers, a profile on demand, and a clean end."""

from __future__ import annotations

import json
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from child import dsv4prof
from dsv4prof.cli import console
from dsv4prof.cli.app import app
from serve_child import ServeChild, serve_child

pytest.importorskip("uvicorn")


@pytest.fixture
def place(workspace: Path, tmp_path: Path) -> Path:
    return tmp_path


def complete(url: str, **body) -> httpx.Response:
    wanted = {"prompt": "hello world", "max_tokens": 12, "temperature": 0, "ignore_eos": True, **body}
    return httpx.post(url + "/v1/completions", json=wanted, timeout=120, trust_env=False)


class Busy:
    """Requests one after the other, until the block ends; every answer has to be right."""

    def __init__(self, url: str) -> None:
        self._url, self._over = url, threading.Event()
        self._pool = ThreadPoolExecutor(1)
        self._future = None

    def __enter__(self) -> Busy:
        self._future = self._pool.submit(self._send)
        return self

    def _send(self) -> set[str]:
        texts = set()
        while not self._over.is_set():
            texts.add(complete(self._url, max_tokens=24).json()["choices"][0]["text"])
        return texts

    def __exit__(self, *_: object) -> None:
        self._over.set()
        texts = self._future.result(60)
        self._pool.shutdown()
        assert len(texts) == 1, "the profiler changed an answer"


def test_it_serves_is_profiled_and_ends(place: Path) -> None:
    with serve_child("--sessions-dir", "recorded", "--grace", "0.2", cwd=place) as server:
        info = httpx.get(server.url + "/server_info", trust_env=False).json()
        assert info["tp_size"] == 1 and info["speculative_num_draft_tokens"] == 4 and info["engine"]["num_drafts"] == 3
        assert info["served_model_name"] == "dsv4-tiny" and "torch" in info["versions"]
        with Busy(server.url):
            started = httpx.post(
                server.url + "/start_profile", json={"num_steps": 4, "with_stack": False}, timeout=60, trust_env=False
            )
            assert started.json()["success"], started.text
            last = wait_for_last(server.url)
        assert last["outcome"] == "complete" and last["steps"] == 4 and last["ended_by"] == "max_steps"
        assert last["windows"][0]["release"]["freed"] and last["windows"][0]["release"]["holders"] == []
        assert (place / "recorded") == Path(last["session"]).parent
        refused = httpx.post(server.url + "/start_profile", json={"num_step": 4}, trust_env=False)
        assert refused.status_code == 400 and "did you mean" in refused.json()["hint"]
        stop_when_idle(server.url)
        end_while_it_records(server)
    assert "Traceback" not in server.stderr and "error:" not in server.stderr
    traces = [list(session.glob("rank0*.trace.json.gz")) for session in (place / "recorded").iterdir()]
    assert [len(each) for each in traces] == [1, 1, 1]


def stop_when_idle(url: str) -> None:
    """The engine's thread is asleep, and still stops and saves."""
    httpx.post(url + "/start_profile", json={"with_stack": False}, timeout=60, trust_env=False)
    text = complete(url).json()["choices"][0]["text"]
    stopped = httpx.post(url + "/stop_profile", timeout=60, trust_env=False).json()
    assert stopped["success"] and stopped["result"]["steps"] > 3
    assert complete(url).json()["choices"][0]["text"] == text


def end_while_it_records(server: ServeChild) -> None:
    """What runs hears of the end, and what was recorded is saved."""
    httpx.post(server.url + "/start_profile", json={"with_stack": False}, timeout=60, trust_env=False)
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(complete, server.url, max_tokens=3000)
        until = time.monotonic() + 60
        while time.monotonic() < until:
            status = httpx.get(server.url + "/profile_status", timeout=60, trust_env=False).json()
            if status["state"] == "recording":
                break
            time.sleep(0.05)
        assert server.end(signal.SIGINT) == 130
        assert future.result().status_code == 503 and "shutting down" in future.result().text


def wait_for_last(url: str, timeout: float = 60) -> dict:
    until = time.monotonic() + timeout
    while time.monotonic() < until:
        status = httpx.get(url + "/profile_status", timeout=60, trust_env=False).json()
        if status["last"] is not None and status["state"] == "idle" and status["saving"] == 0:
            return status["last"]
        time.sleep(0.2)
    raise AssertionError("the recording did not end")


@pytest.mark.slow
def test_two_ranks_answer_as_one_and_are_recorded_together(place: Path) -> None:
    """With attach; the one rank above and tests/unit/engine/server/test_lifetimes.py are its faster siblings."""
    with serve_child(cwd=place) as server:
        alone = complete(server.url).json()["choices"][0]["text"]
        assert server.end(signal.SIGTERM) == 0
    with serve_child("--tp", "2", cwd=place) as server:
        assert complete(server.url).json()["choices"][0]["text"] == alone
        with Busy(server.url):
            attached = dsv4prof("attach", server.url, "--steps", "4", "--format", "json", cwd=place)
        assert attached.status == 0, attached.stderr
        assert attached.json["session"]["outcome"] == "complete" and attached.json["missing_ranks"] == []
        assert {"draft", "target_verify", "draft_extend"} <= set(attached.json["phases"])
        (session,) = (place / "traces" / "local").glob("*-attach-*")
        ranks = json.loads((session / "manifest.json").read_text())["ranks"]
        assert [[window["steps"] for window in rank["windows"]] for rank in ranks] == [[4], [4]]
        assert server.end(signal.SIGTERM) == 0
    assert "Traceback" not in server.stderr


def test_what_is_refused_is_one_sentence(place: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        refused = dsv4prof("serve", "--port", port, cwd=place)
    assert refused.status == 2 and f"port {port} on 127.0.0.1 cannot be used" in refused.stderr


def test_a_rank_of_torchrun_is_no_server(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert console.guarded(lambda: app(["serve", "--tp", "2"], standalone_mode=False)) == 2
    told = capsys.readouterr().err
    assert "serve is no rank of torchrun's" in told and "hint: serve --tp N starts its own ranks, on one host" in told


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (("--model", "nowhere"), "model nowhere does not exist"),
        (("--port", "70000"), "port 70000 is not between 0 and 65535"),
        (("--max-queue", "-1"), "--max-queue: serve_max_queue = -1 is not at least 0"),
        (("--api-key", ""), "the API key is empty"),
        (("--tp", "3"), "3"),
        (("--drafts", "9"), "num_drafts is 9"),
    ],
)
def test_senseless_options_are_refused(wrong: tuple[str, str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert console.guarded(lambda: app(["serve", *wrong], standalone_mode=False)) == 2
    told = capsys.readouterr()
    assert told.out == "" and told.err.count("error:") == 1 and words in told.err and "internal" not in told.err
