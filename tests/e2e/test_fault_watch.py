"""A rank that dies or stands still under --fault-watch: named, with its work, in bounded time."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="the engine extra is not installed")

from child import TINY, dsv4prof
from dsv4prof.faultrecord.layout import Cell
from dsv4prof.faultrecord.reader import read_progress

WORK = (*TINY, "--tp", "2", "--requests", "64", "--max-requests", "2", "--max-new-tokens", "24")


def start(folder: Path, *options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "dsv4prof", "run", "--fault-watch", *WORK, *options, "--format", "json"],
        cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "1"}, start_new_session=True,
    )  # fmt: skip


def session_in_its_steps(folder: Path, child: subprocess.Popen[str]) -> Path:
    """The session's folder, once both ranks have made some steps."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        assert child.poll() is None, child.communicate()
        for rings in folder.glob("traces/local/*/rank1.faultring"):
            seen = [read_progress(rings.with_name(f"rank{rank}.faultring")) for rank in range(2)]
            if all(each is not None and each[0][Cell.STEPS_DONE] > 5 for each in seen):
                return rings.parent
        time.sleep(0.05)
    raise AssertionError("no rank came to its steps")


def pid_of(session: Path, rank: int) -> int:
    return int(json.loads((session / f"rank{rank}.json").read_text())["pid"])


def report_of(child: subprocess.Popen[str], *, timeout: float) -> tuple[dict[str, Any], str]:
    stdout, stderr = child.communicate(timeout=timeout)
    assert child.returncode == 1, stderr
    return json.loads(stdout), stderr


def test_a_rank_that_stands_still(tmp_path: Path) -> None:
    child = start(tmp_path, "--fault-watch-timeout", "2", "--profile", "--steps", "4000")
    session = session_in_its_steps(tmp_path, child)
    stopped = pid_of(session, 1)
    os.kill(stopped, signal.SIGSTOP)
    began = time.monotonic()
    report, stderr = report_of(child, timeout=60)
    assert time.monotonic() - began < 40, "a hang ends in bounded time"
    assert not Path(f"/proc/{stopped}").exists() or "Z" in Path(f"/proc/{stopped}/stat").read_text()
    assert report["findings"][0]["code"] == "DSV803"
    assert "rank 1 is stopped by a signal" in report["verdict"]["summary"], stderr
    by_rank = {each["rank"]: each for each in report["ranks"]}
    assert by_rank[0]["stacks"], "the rank that waits says where"
    frames = [frame for stack in by_rank[0]["stacks"] for frame in stack["frames"]]
    assert any("dsv4_engine" in frame["file"] for frame in frames)
    assert "step" in by_rank[0]["state"]
    assert any("synchronize" in note for note in report["notes"])
    part = json.loads((session / "rank1.cpu-part.json").read_text())
    assert any(event["name"].startswith("phase ") for event in part["traceEvents"])
    assert any("not ended" in event["name"] for event in part["traceEvents"])
    again = dsv4prof("fault", "show", str(session), "--format", "json", cwd=tmp_path)
    assert again.status == 1
    assert again.json["findings"][0]["code"] == "DSV803"


def test_a_rank_that_is_killed(tmp_path: Path) -> None:
    child = start(tmp_path)
    session = session_in_its_steps(tmp_path, child)
    os.kill(pid_of(session, 1), signal.SIGKILL)
    report, _ = report_of(child, timeout=60)
    assert report["first"] == 1
    assert report["findings"][0]["code"] == "DSV805"
    assert "SIGKILL" in report["findings"][0]["message"]
    assert "in step" in report["findings"][0]["message"]
    assert report["reruns"], "how to narrow it"
    assert (session / "manifest.json").is_file()


def test_a_run_that_ends_well_reports_no_fault(tmp_path: Path) -> None:
    small = (*TINY, "--tp", "1", "--requests", "2", "--max-requests", "2", "--max-new-tokens", "6")
    done = dsv4prof("run", "--fault-watch", *small, "--format", "json", cwd=tmp_path)
    assert done.status == 0, done.stderr
    shown = dsv4prof("fault", "show", "latest", "--format", "json", cwd=tmp_path)
    assert shown.status == 0, shown.stdout
    assert shown.json["findings"] == []
    assert shown.json["ranks"][0]["ended"]


@pytest.mark.parametrize("options", [(), ("--no-gpu",)])
def test_a_watched_command_that_dies(options: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        "import os, torch\nx = torch.ones(5, 5)\nx.index_select(0, torch.tensor([1]))\nos.abort()\n"
    )
    done = dsv4prof(
        "audit", "run", *options, "--fault-watch", "--format", "json", "--", sys.executable, "program.py", cwd=tmp_path
    )
    assert done.status == 128 + signal.SIGABRT, done.stderr
    assert done.json["findings"][0]["code"] == "DSV805"
    assert done.json["fault"]["ranks"][0]["suspects"][0]["name"].startswith("aten::index_select")
    shown = dsv4prof("fault", "show", "latest", "--format", "json", cwd=tmp_path)
    assert shown.status == 1, shown.stderr
    assert shown.json["findings"][0]["code"] == "DSV805"
    well = dsv4prof("audit", "run", "--fault-watch", "--format", "json", "--", sys.executable, "-c", "import torch",
                    cwd=tmp_path)  # fmt: skip
    assert well.status == 0, well.stderr
    assert "fault" not in well.json
