"""Many recordings in one process: nothing may grow, neither memory nor descriptors, threads or files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")

from recorded_child import run_child

# A minute.
pytestmark = pytest.mark.slow

# Counted when everything that a first recording makes once is there, and when all recordings are over.
MEASURE = """
import gc, json, tempfile
import psutil
from dsv4prof.recorder.control import ProfilerManager

me = psutil.Process()
temporary = Path(root, "tmp"); temporary.mkdir()
os.environ["TMPDIR"], tempfile.tempdir = str(temporary), None
sessions = Path(root, "sessions")
def comm(task):
    try: return Path("/proc/self/task", task, "comm").read_text()
    except FileNotFoundError: return None  # it ended just now
def facts():
    # The thread that saved the last trace is about to end.
    for thread in threading.enumerate():
        if thread.name == "dsv4prof-save": thread.join(10)
    return {
        "rss_mib": me.memory_info().rss / 2**20,
        "fds": me.num_fds(),
        "threads": sorted(filter(None, map(comm, os.listdir("/proc/self/task")))),
        "temporary": sorted(map(str, temporary.rglob("*"))),
        "strays": sorted(
            str(path) for path in sessions.rglob("*")
            if path.name.startswith(".") or (path.parent == sessions and not path.is_dir())
        ),
    }
def cycles(one, count, first):
    one()
    # As a server does after its warm-up; what torch has loaded would be looked through at every release, 0.1 s each.
    gc.freeze()
    began = time.perf_counter()
    for number in range(2, count + 1):
        one()
        if number == first: early = facts()
    late = facts()
    seconds = time.perf_counter() - began
    print(json.dumps([early, late, len(list(sessions.iterdir())), seconds]))
"""
RECORD = """
def one():
    with record(PLAN, root=sessions): work()
"""
MANAGER = """
manager = ProfilerManager(root=sessions, plan=PLAN)
def one():
    manager.start(); manager.step(); work(); manager.step()
    assert manager.stop().outcome == "complete"
    status = manager.status()
    assert (status.state, status.profilers_alive, status.held_bytes) == ("idle", 0, 0), status
"""


def _cycles(root: Path, body: str) -> tuple[dict, dict, int, float]:
    code, out, err = run_child(root, MEASURE + body)
    assert code == 0, err
    return tuple(json.loads(out.strip().splitlines()[-1]))


def _assert_flat(early: dict, late: dict) -> None:
    print({key: (early[key], late[key]) for key in ("rss_mib", "fds")}, len(late["threads"]), "threads")
    assert late["rss_mib"] <= max(early["rss_mib"] * 1.1, early["rss_mib"] + 20)
    for key in ("fds", "threads", "temporary", "strays"):
        assert late[key] == early[key], key
    assert [path for path in late["temporary"] if "torchinductor" not in path] == []
    assert late["strays"] == []


@pytest.mark.parametrize("way", [RECORD, MANAGER], ids=["record", "manager"])
def test_two_hundred_cycles_leave_nothing(tmp_path: Path, way: str) -> None:
    early, late, sessions, seconds = _cycles(tmp_path, f"{way}cycles(one, 200, 20)")
    print(f"{seconds / 200 * 1e3:.1f} ms a cycle")
    _assert_flat(early, late)
    assert sessions == 200


def test_sixty_larger_sessions_do_not_grow_the_process(tmp_path: Path) -> None:
    """Each holds 4,000 operators, which a profiler that waits for its collection would keep: some 10 MB."""
    body = f"{MANAGER.replace('work();', 'work(1000);')}cycles(one, 60, 10)"
    early, late, sessions, seconds = _cycles(tmp_path, body)
    print(f"{seconds / 60 * 1e3:.1f} ms a cycle")
    _assert_flat(early, late)
    assert sessions == 60
