"""A child's end: its status without trusting it, its time limited, and nothing that it started left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from dsv4prof.recorder.faults import FAULTS
from dsv4prof.recorder.faults.groups import LeftAloneError, await_end
from dsv4prof.recorder.faults.run import environment


def start(code: str) -> int:
    return subprocess.Popen([sys.executable, "-c", code], start_new_session=True).pid


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("raise SystemExit(7)", 7),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
        ("import os; os._exit(0)", 0),
    ],
)
def test_the_status_is_the_childs_own(code: str, status: int) -> None:
    found, seconds = await_end(start(code), 30)
    assert found == status
    assert seconds < 30


def test_one_that_does_not_end_is_killed_and_called_a_hang() -> None:
    pid = start("import time; time.sleep(60)")
    assert await_end(pid, 0.2)[0] is None
    assert not psutil.pid_exists(pid)


def test_what_a_child_has_started_ends_with_it(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    code = f"""
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
open({str(note)!r}, "w").write(str(child.pid))
"""
    assert await_end(start(code), 30)[0] == 0
    grandchild = int(note.read_text())
    deadline = time.monotonic() + 10
    while psutil.pid_exists(grandchild) and psutil.Process(grandchild).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline, "it lives on"
        time.sleep(0.02)


def test_nobody_waits_for_whom_nobody_asks_any_more() -> None:
    reader, writer = os.pipe()
    os.close(writer)
    pid = start("import time; time.sleep(60)")
    with pytest.raises(LeftAloneError):
        await_end(pid, 30, asked_by=reader)
    os.close(reader)
    assert not psutil.pid_exists(pid)


def test_a_launchers_variables_make_no_rank_of_a_child() -> None:
    ranks = {"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "DSV4PROF_SESSION": "x"}
    inherited = {**ranks, "HOME": "/h", "PYTHONPATH": "a"}
    found = environment(inherited)
    assert ranks.keys().isdisjoint(found)
    assert found["HOME"] == "/h"
    assert found["PYTHONPATH"].endswith(f"{os.pathsep}a")
    assert (Path(found["PYTHONPATH"].split(os.pathsep)[0]) / "dsv4prof").is_dir()


def test_names_and_sentences_tell_faults_apart() -> None:
    assert len({fault.name for fault in FAULTS}) == len({fault.sentence for fault in FAULTS}) == len(FAULTS)
    assert all(fault.plain is not fault.ours for fault in FAULTS)


def test_a_half_that_does_not_exist_is_a_mistake_in_the_call() -> None:
    child = subprocess.run(
        [sys.executable, "-m", "dsv4prof.recorder.faults", "no-such", "plain", "."],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert child.returncode == 64
    assert "usage" in child.stderr
