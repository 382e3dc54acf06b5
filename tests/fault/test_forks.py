"""A fork inside a recording: the child goes its way without a trace, the parent's trace is whole."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

pytest.importorskip("torch")

from recorded_child import assert_whole, only_session, record_of, run_child

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
    code, out, err = run_child(tmp_path, body, thawed=status in (3, 7))
    assert code == 0, err
    assert f"child ended with {status}" in out
    assert ("child left the block None" in out) == (status == 3)
    folder = only_session(tmp_path)
    assert_whole(folder)
    assert record_of(folder)["outcome"] == "complete"
    assert [window["steps"] for window in record_of(folder)["windows"]] == [2]
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
    code, out, err = run_child(tmp_path, body)
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
    code, out, err = run_child(tmp_path, body)
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
    code, out, err = run_child(tmp_path, body)
    assert code == 0, err
    assert "does not survive a fork" in out
    assert "child ended with 7" in out
    assert_whole(only_session(tmp_path))


def test_a_fork_while_a_trace_is_being_saved_leaves_the_saving_to_the_parent(tmp_path: Path) -> None:
    body = f"""{FORK}
import dsv4prof.recorder.backends.kineto as kineto
export = kineto.KinetoBackend.export
exporting, go_on = threading.Event(), threading.Event()
def slow(self, path):
    exporting.set(); go_on.wait(20); export(self, path)
kineto.KinetoBackend.export = slow
with record(RecordPlan(active=2, with_stack=False), root=root) as r:
    work(); r.step(); work(); r.step()
    exporting.wait(20)
    pid = fork()
    if pid == 0:
        # Leaving the block must not wait for a thread that only the parent has.
        pass
    else:
        status_of(pid)
        go_on.set()
if pid == 0:
    sys.exit(3)
"""
    code, out, err = run_child(tmp_path, body)
    assert code == 0, err
    assert "child ended with 3" in out
    folder = only_session(tmp_path)
    assert_whole(folder)
    assert record_of(folder)["outcome"] == "complete"
    assert sorted(path.name for path in folder.iterdir()) == ["manifest.json", "rank0.json", "rank0.trace.json.gz"]


def test_workers_before_in_and_after_a_recording_do_their_work_and_end(tmp_path: Path) -> None:
    body = """
import multiprocessing, warnings
# Python 3.12 warns of every fork beside threads.
warnings.simplefilter("ignore", DeprecationWarning)
from torch.utils.data import DataLoader
fork = multiprocessing.get_context("fork")
class Numbers:
    def __len__(self): return 32
    def __getitem__(self, index): return torch.ones(4) * index
def serve(number):
    work(); return number * 2
def load():
    batches = DataLoader(Numbers(), batch_size=4, num_workers=2, multiprocessing_context="fork", timeout=20)
    return sum(float(batch.sum()) for batch in batches)
def pool():
    with fork.Pool(2) as workers:
        done = workers.map_async(serve, range(8)).get(timeout=20)
        workers.close(); workers.join()
    return sum(done)
# Workers that are kept over the whole recording, and those that live for one call.
kept = iter(DataLoader(Numbers(), batch_size=1, num_workers=2, multiprocessing_context="fork", timeout=20))
print(load(), pool(), flush=True)
for _ in range(2):
    with record(PLAN, root=root) as r:
        work(); r.step()
        print(load(), pool(), float(next(kept).sum()), flush=True); r.step()
        work()
    print(load(), pool(), flush=True)
print(sum(1 for _ in kept))
"""
    code, out, err = run_child(tmp_path, body)
    assert code == 0, err
    sums = f"{4 * sum(range(32)):.1f} {2 * sum(range(8))}"
    assert out.splitlines() == [sums, f"{sums} 0.0", sums, f"{sums} 4.0", sums, "30"]
    assert len(list(tmp_path.iterdir())) == 2
    for folder in tmp_path.iterdir():
        assert_whole(folder)
        assert record_of(folder)["outcome"] == "complete"


MANAGED = """
from dsv4prof.recorder.control import ProfilerManager
def serve(times=3):
    for _ in range(times):
        manager.begin_step(); work(); manager.end_step()
def until_idle():
    end = time.time() + 20
    while not manager.wait(0.01) and time.time() < end:
        manager.poll(); time.sleep(0.01)
"""


@pytest.mark.parametrize("when", ["pending", "recording", "after"])
def test_a_child_of_a_managed_program_serves_on_and_is_told_that_it_cannot_record(tmp_path: Path, when: str) -> None:
    body = f"""{FORK}{MANAGED}
when = {when!r}
manager = ProfilerManager(root=root)
serve()
manager.start(RecordPlan(active=4, with_stack=False))
if when != "pending": serve(2)
if when == "after":
    serve(4); until_idle()
pid = fork()
if pid == 0:
    serve(6)
    try:
        manager.start(RecordPlan(active=2))
    except Dsv4profError as error:
        print("child:", type(error).__name__, error.message, flush=True)
    try:
        manager.stop(wait_s=1)
    except Dsv4profError as error:
        print("child:", type(error).__name__, flush=True)
    manager.request_toggle(); serve(2); manager.close()
    sys.exit(7)
status_of(pid)
serve(6); until_idle()
print(manager.status().last.outcome, manager.status().last.steps)
manager.close()
"""
    code, out, err = run_child(tmp_path, body)
    assert code == 0, err
    assert "child ended with 7" in out
    assert out.count("child: LifetimeError") == 2
    assert "fork" in out
    assert out.rstrip().endswith("complete 4")
    folder = only_session(tmp_path)
    assert_whole(folder)
    assert sorted(path.name for path in folder.iterdir()) == ["manifest.json", "rank0.json", "rank0.trace.json.gz"]
