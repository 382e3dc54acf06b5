"""A program that records itself in a child process, because the faults in question end a process."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

from warm_child import WarmProcess

PREAMBLE = """
import os, sys, time, threading, resource, signal
import torch
from pathlib import Path
from dsv4prof.errors import Dsv4profError
from dsv4prof.model.session import RankCoordinates
from dsv4prof.recorder import RecordPlan, Recorder, record
from dsv4prof.recorder.backends.kineto import KinetoBackend
from dsv4prof.recorder.sessions import create_session
from dsv4prof.recorder.sink import RankSink
torch.set_num_threads(1)
# A shell that runs tests in the background ignores SIGINT for all it starts; a user's program is not started so.
signal.signal(signal.SIGINT, signal.default_int_handler)
PLAN = RecordPlan(active=100000, with_stack=False)
def work(n=20):
    for _ in range(n):
        torch.ones(4).sum().item()
def recorder():
    folder = create_session(root, name="t", world_size=1)
    return Recorder(PLAN, RankSink(folder, RankCoordinates(rank=0, world_size=1)), lambda: KinetoBackend(PLAN))
"""
# torch's profiler imports it in its first recording, a second that each child would pay.
_PROFILERS_OWN = "import torch._inductor.config\n"
ROOT = "root = Path(sys.argv[1])\n"


def start(root: Path, body: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PREAMBLE + ROOT + body, str(root)],
        text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip


def run_child(root: Path, body: str, *, thawed: bool = False) -> tuple[int, str, str]:
    """Exit status and both streams of a program that is not talked to while it runs. thawed: see `warm_child`."""
    return _warm().run(ROOT + body, str(root), timeout=60, thawed=thawed)


@cache
def _warm() -> WarmProcess:
    return WarmProcess(PREAMBLE + _PROFILERS_OWN)


def finish(child: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = child.communicate(timeout=60)
    return child.returncode, out, err


def only_session(root: Path) -> Path:
    (folder,) = [path for path in root.iterdir() if path.is_dir()]
    return folder


def record_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "rank0.json").read_text())


def assert_whole(folder: Path) -> None:
    events = json.loads(gzip.decompress((folder / "rank0.trace.json.gz").read_bytes()))["traceEvents"]
    assert any(event["name"] == "aten::_local_scalar_dense" for event in events)
    assert record_of(folder)["windows"][0]["release"]["freed"]
    assert list(folder.glob(".*")) == []
