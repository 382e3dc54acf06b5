"""Attaching to a real SGLang server. SGLANG_PEER_PYTHON names the python of an environment that has it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from child import Outcome, dsv4prof
from dsv4prof.recorder.sessions import open_session
from dsv4prof.trace.load import load_rank

PEER = os.environ.get("SGLANG_PEER_PYTHON")
STARTUP_S = 240
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not PEER, reason="SGLANG_PEER_PYTHON names no SGLang to attach to"),
]


@contextmanager
def serving(shared: Path, log: Path, *arguments: str) -> Iterator[str]:
    """A server that answers, in a process group of its own that ends with the test."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    script = shared / "peers" / "sglang_cpu" / "serve.sh"
    environment = Path(PEER or "").parent.parent
    with log.open("wb") as output:
        server = subprocess.Popen(
            ["bash", str(script), str(environment), "--port", str(port), *arguments],
            stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
    url = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + STARTUP_S
        while not _answers(url):
            assert server.poll() is None, log.read_text()[-2000:]
            assert time.monotonic() < deadline, log.read_text()[-2000:]
            time.sleep(1)
        yield url
        assert server.poll() is None, "the server died: " + log.read_text()[-2000:]
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url + "/model_info", timeout=5) as answer:
            return answer.status == 200
    except OSError:
        return False


def stops(url: str) -> int:
    """The status of `/stop_profile`: 500 where nothing is recorded."""
    request = urllib.request.Request(url + "/stop_profile", method="POST")
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


@pytest.fixture(scope="module")
def one_rank(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(shared, tmp_path_factory.mktemp("one") / "log") as url:
        yield url


def attach(url: str, cwd: Path, *arguments: str) -> Outcome:
    return dsv4prof("attach", url, *arguments, "--format", "json", cwd=cwd)


def test_steps_are_recorded_merged_and_explained(one_rank: str, tmp_path: Path) -> None:
    outcome = attach(one_rank, tmp_path, "--steps", "8")
    assert outcome.status == 0, outcome.stderr
    report = outcome.json
    assert report["server"]["kind"] == "sglang"
    assert report["check"]["duplicate_flows"] == 0
    assert {"prefill", "decode"} <= set(report["phases"])
    session = open_session(report["session"]["path"])
    (record,) = session.ranks
    assert record.steps == 8
    # Operators of the model, not of a control thread.
    assert sum(record.windows[0].events_by_thread.values()) > 1000
    assert load_rank(Path(report["session"]["path"], record.trace)).complete
    assert stops(one_rank) == 500


def test_seconds_and_stages(one_rank: str, tmp_path: Path) -> None:
    timed = attach(one_rank, tmp_path, "--seconds", "1", "--no-stack")
    assert timed.status == 0, timed.stderr
    assert open_session(timed.json["session"]["path"]).ranks[0].windows[0].ended_by.value == "stop"
    staged = attach(one_rank, tmp_path, "--by-stage", "--steps", "2", "--no-stack")
    assert staged.status == 0, staged.stderr
    assert list(staged.json["windows"]) == ["prefill", "decode"]
    assert stops(one_rank) == 500


def test_an_idle_server_that_is_left_alone_is_left_as_it_was(one_rank: str, tmp_path: Path) -> None:
    outcome = attach(one_rank, tmp_path, "--steps", "3", "--load", "none", "--patience", "2")
    assert outcome.status == 2
    assert "nothing was recorded" in outcome.stderr
    again = attach(one_rank, tmp_path, "--steps", "3", "--no-stack")
    assert again.status == 0, again.stderr


def test_the_second_of_two_is_refused_and_the_first_is_whole(one_rank: str, tmp_path: Path) -> None:
    first: list[Outcome] = []
    thread = threading.Thread(target=lambda: first.append(attach(one_rank, tmp_path, "--seconds", "5", "--no-stack")))
    thread.start()
    time.sleep(2.5)
    second = attach(one_rank, tmp_path, "--steps", "3")
    thread.join()
    assert second.status == 2
    assert "already being profiled" in second.stderr
    assert first[0].status == 0, first[0].stderr


def test_somebody_elses_recording_survives_ours(one_rank: str, tmp_path: Path) -> None:
    theirs = {"output_dir": str(tmp_path), "activities": ["CPU"], "with_stack": False, "profile_id": "theirs"}
    body = json.dumps(theirs).encode()
    request = urllib.request.Request(one_rank + "/start_profile", body, {"Content-Type": "application/json"})
    urllib.request.urlopen(request, timeout=60).close()
    outcome = attach(one_rank, tmp_path, "--steps", "3")
    assert outcome.status == 2
    assert "refused to start profiling" in outcome.stderr
    assert stops(one_rank) == 200
    assert load_rank(tmp_path / "theirs-TP-0.trace.json.gz").complete


def test_two_ranks_and_twenty_times(shared: Path, tmp_path: Path) -> None:
    with serving(shared, tmp_path / "log", "--dp", "2") as url:
        for _ in range(20):
            outcome = attach(url, tmp_path, "--steps", "6", "--no-stack")
            assert outcome.status == 0, outcome.stderr
            assert [rank["rank"] for rank in outcome.json["ranks"]] == [0, 1]
        assert stops(url) == 500
