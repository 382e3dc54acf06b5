"""Ranks that die, leaders that die, Ctrl-C: nobody hangs, nobody stays, and what was recorded is kept."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

pytest.importorskip("torch")

LEADER = """
import sys
from dsv4prof.errors import Dsv4profError
from dsv4prof.recorder.plan import RecordPlan
from dsv4prof.target.launch import run
from dsv4prof.target.spec import RunSpec

plan = RecordPlan(active=4000)
spec = RunSpec(
    model="dsv4-tiny", tp=2, profile=True, root=sys.argv[1], requests=4, max_new_tokens=16, plan=plan
)
try:
    run(spec, progress=lambda event: print(event, file=sys.stderr, flush=True))
except Dsv4profError as error:
    assert "torch" not in sys.modules, "the leader stays without torch"
    print(f"{type(error).__name__}: {error.message} | {error.hint}")
    sys.exit(error.exit_code)
"""


class Leader:
    """A leader in a child process, and its session once both ranks record."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.process = subprocess.Popen(
            [sys.executable, "-c", LEADER, str(root)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        self.folder = self._wait_for_steps()

    def _wait_for_steps(self) -> Path:
        deadline = time.monotonic() + 90
        while time.monotonic() < deadline:
            assert self.process.poll() is None, self.process.communicate()
            for folder in self.root.glob("*"):
                if all(self.record(rank, folder).get("windows") for rank in (0, 1)):
                    time.sleep(0.5)
                    return folder
            time.sleep(0.05)
        raise AssertionError("no rank began to record")

    def record(self, rank: int, folder: Path | None = None) -> dict[str, Any]:
        path = (folder or self.folder) / f"rank{rank}.json"
        return json.loads(path.read_text()) if path.exists() else {}

    def manifest(self) -> dict[str, Any]:
        return json.loads((self.folder / "manifest.json").read_text())

    def pid(self, rank: int) -> int:
        return int(self.record(rank)["pid"])

    def end(self, timeout: float) -> tuple[int, str]:
        out, err = self.process.communicate(timeout=timeout)
        return self.process.returncode, out + err


@pytest.fixture
def leader(tmp_path: Path) -> Iterator[Leader]:
    leader = Leader(tmp_path / "sessions")
    pids = [leader.pid(0), leader.pid(1)]
    yield leader
    if leader.process.poll() is None:
        leader.process.kill()
        leader.process.communicate()
    for pid in pids:
        if not gone_within(0.1, [pid]):
            os.kill(pid, signal.SIGKILL)


def gone_within(seconds: float, pids: list[int]) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not any(psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE for pid in pids):
            return True
        time.sleep(0.05)
    return False


# By default rank 1 is killed, and the run interrupted by Ctrl-C, in tests/e2e/test_bad_input.py.
@pytest.mark.parametrize("victim", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_a_killed_rank_is_named_and_the_other_keeps_its_trace(leader: Leader, victim: int) -> None:
    began = time.monotonic()
    os.kill(leader.pid(victim), signal.SIGKILL)
    status, said = leader.end(timeout=40)
    assert time.monotonic() - began < 20
    assert status == 2
    assert f"RankFailedError: rank {victim} was killed by SIGKILL" in said
    assert "1 of 2 traces" in said
    manifest = leader.manifest()
    ranks = {rank["coordinates"]["rank"]: rank for rank in manifest["ranks"]}
    assert manifest["outcome"] == "incomplete"
    assert ranks[victim]["outcome"] == "incomplete"
    assert "SIGKILL" in ranks[victim]["reason"]
    assert [window["trace"] for window in ranks[victim]["windows"]] in ([], [None])
    survivor = ranks[1 - victim]
    assert survivor["outcome"] == "incomplete"
    assert "lost the other ranks" in survivor["reason"]
    (window,) = survivor["windows"]
    assert window["steps"] > 0
    assert (leader.folder / window["trace"]).stat().st_size == window["trace_bytes"]
    assert window["release"]["freed"]
    assert f"rank {victim}: " in manifest["reason"]
    assert hidden_files(leader.folder) == []


def hidden_files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob(".*"))


@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=pytest.mark.slow), signal.SIGTERM])
def test_an_interrupt_ends_all_ranks_after_the_same_step(leader: Leader, number: signal.Signals) -> None:
    pids = [leader.pid(0), leader.pid(1)]
    leader.process.send_signal(number)
    status, said = leader.end(timeout=60)
    assert status == 130
    assert "InterruptedRunError: interrupted; what was recorded has been saved" in said
    manifest = leader.manifest()
    assert {rank["outcome"] for rank in manifest["ranks"]} == {"incomplete"}
    assert {rank["reason"] for rank in manifest["ranks"]} == {"interrupted by Ctrl-C"}
    windows = [rank["windows"][0] for rank in manifest["ranks"]]
    assert len({window["steps"] for window in windows}) == 1
    assert windows[0]["steps"] > 0
    for rank, window in zip(manifest["ranks"], windows, strict=True):
        assert (leader.folder / window["trace"]).stat().st_size == window["trace_bytes"]
        assert rank["overhead"]["profiled_steps"] == window["steps"]
    assert hidden_files(leader.folder) == []
    assert gone_within(5, pids)


def test_an_interrupt_before_recording_leaves_no_session(tmp_path: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", LEADER, str(tmp_path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert child.stderr is not None
    assert child.stderr.readline().strip() == "loading the model"
    child.send_signal(signal.SIGINT)
    out, _ = child.communicate(timeout=40)
    assert child.returncode == 130
    assert "before anything was recorded" in out
    assert list(tmp_path.iterdir()) == []


def test_a_killed_leader_leaves_no_rank_behind(leader: Leader) -> None:
    pids = [leader.pid(0), leader.pid(1)]
    leader.process.send_signal(signal.SIGKILL)
    leader.process.communicate()
    assert gone_within(10, pids)
    from dsv4prof.recorder.sessions import open_session

    session = open_session(leader.folder)
    assert session.outcome.value == "incomplete"
    assert all("ended without saving" in (rank.reason or "") for rank in session.ranks)


def test_a_rank_that_hangs_is_ended_and_named(leader: Leader) -> None:
    """A stopped process answers nothing; a second Ctrl-C does not wait for it."""
    os.kill(leader.pid(1), signal.SIGSTOP)
    leader.process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    began = time.monotonic()
    leader.process.send_signal(signal.SIGINT)
    status, said = leader.end(timeout=30)
    assert time.monotonic() - began < 15
    assert status == 130, said
    reasons = {rank["coordinates"]["rank"]: rank["reason"] for rank in leader.manifest()["ranks"]}
    assert "ended by the leader with SIGKILL" in reasons[1]
