"""A fork inside a recording: the child goes its way without a trace, the parent's trace is whole."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

pytest.importorskip("torch")

from recorded_child import assert_whole, finish, only_session, record_of, start

if not hasattr(os, "fork"):
    pytest.skip("this system has no fork", allow_module_level=True)

FORK = """
def fork():
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        signal.alarm(20)
    return pid
def status_of(pid):
    _, status = os.waitpid(pid, 0)
    print("child ended with", os.waitstatus_to_exitcode(status))
"""


@pytest.mark.parametrize(
    ("ending", "status"),
    [
        ("sys.exit(7)", 7),
        ("raise ValueError('boom')", 1),
        ("work(); r.step(); work()", 3),
        ("os.kill(os.getpid(), signal.SIGTERM); time.sleep(30)", 128 + signal.SIGTERM),
        ("os._exit(5)", 5),
    ],
    ids=["sys.exit", "exception", "end of the block", "SIGTERM", "_exit"],
)
def test_a_child_forked_in_the_block_leaves_everything_to_its_parent(tmp_path: Path, ending: str, status: int) -> None:
    body = f"""{FORK}
with record(PLAN, root=root) as r:
    work(); r.step()
    pid = fork()
    if pid == 0:
        {ending}
    else:
        status_of(pid)
        work(); r.step()
if pid == 0:
    print("child left the block", r.proof, flush=True)
    sys.exit(3)
"""
    code, out, err = finish(start(tmp_path, body))
    assert code == 0, err
    assert f"child ended with {status}" in out
    assert ("child left the block None" in out) == (status == 3)
    folder = only_session(tmp_path)
    assert_whole(folder)
    assert record_of(folder)["outcome"] == "complete"
    assert record_of(folder)["steps"] == 2
    assert sorted(path.name for path in folder.iterdir()) == ["manifest.json", "rank0.json", "rank0.trace.json.gz"]


def test_the_exit_of_a_child_does_not_save_an_armed_recorder(tmp_path: Path) -> None:
    body = f"""{FORK}
r = recorder(); r.arm(); work()
pid = fork()
if pid == 0:
    sys.exit(7)
status_of(pid)
print(r.record.outcome.value)
"""
    code, out, err = finish(start(tmp_path, body))
    assert code == 0, err
    assert "child ended with 7\nrecording" in out
    assert_whole(only_session(tmp_path))


def test_a_worker_of_multiprocessing_works(tmp_path: Path) -> None:
    body = """
import multiprocessing
def serve(queue):
    work(); queue.put("served")
with record(PLAN, root=root):
    work()
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=serve, args=(queue,))
    child.start()
    print(queue.get(timeout=20)); child.join(20); print(child.exitcode)
"""
    code, out, err = finish(start(tmp_path, body))
    assert code == 0, err
    assert "served\n0\n" in out
    assert_whole(only_session(tmp_path))


def test_a_child_forked_after_a_recording_exits_and_cannot_record(tmp_path: Path) -> None:
    body = f"""{FORK}
with record(PLAN, root=root): work()
pid = fork()
if pid == 0:
    try:
        with record(PLAN, root=root): work()
    except Dsv4profError as error:
        print(error.message)
    sys.exit(7)
status_of(pid)
"""
    code, out, err = finish(start(tmp_path, body))
    assert code == 0, err
    assert "does not survive a fork" in out
    assert "child ended with 7" in out
    assert_whole(only_session(tmp_path))
