"""What ends a process while it records: each case in a child, judged by its exit status and by the files it left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("torch")

from dsv4prof.model.session import Session
from dsv4prof.recorder.sessions import list_sessions
from recorded_child import PREAMBLE, ROOT, assert_whole, finish, only_session, record_of, run_child, start


@pytest.mark.parametrize(
    ("ending", "status", "reason"),
    [
        ("sys.exit(7)", 7, "SystemExit: 7"),
        ("raise ValueError('boom')", 1, "ValueError: boom"),
        ("os.kill(os.getpid(), signal.SIGTERM); time.sleep(30)", 128 + signal.SIGTERM, "SystemExit: 143"),
        ("os.kill(os.getpid(), signal.SIGINT); time.sleep(30)", -signal.SIGINT, "KeyboardInterrupt"),
    ],
    ids=["sys.exit", "exception", "SIGTERM", "SIGINT"],
)
def test_whatever_leaves_the_block_saves_first(tmp_path: Path, ending: str, status: int, reason: str) -> None:
    body = f"with record(PLAN, root=root) as recorder:\n    work(); recorder.step()\n    {ending}\n"
    code, _, err = run_child(tmp_path, body, thawed=True)
    assert code == status, err
    folder = only_session(tmp_path)
    assert_whole(folder)
    assert record_of(folder)["outcome"] == "incomplete"
    assert reason in record_of(folder)["reason"]
    assert json.loads((folder / "manifest.json").read_text())["outcome"] == "incomplete"


def test_a_programs_own_steps_are_found_in_its_trace(tmp_path: Path) -> None:
    body = "with record(PLAN, root=root) as r:\n    for _ in range(4): work(); r.step()\n"
    code, _, err = run_child(tmp_path, body)
    assert code == 0, err
    from dsv4prof.trace.index import TraceIndex
    from dsv4prof.trace.merge import load_ranks, merge

    trace = TraceIndex(merge(load_ranks([only_session(tmp_path) / "rank0.trace.json.gz"])))
    assert [step.index for step in trace.steps] == [0, 1, 2, 3]


def test_an_exit_with_a_recorder_still_armed_saves_and_does_not_crash(tmp_path: Path) -> None:
    code, _, err = run_child(tmp_path, "r = recorder(); r.arm(); work()\n", thawed=True)
    assert code == 0, err
    assert_whole(only_session(tmp_path))
    assert "exited while recording" in record_of(only_session(tmp_path))["reason"]


def test_an_exit_while_another_thread_records_waits_for_its_step(tmp_path: Path) -> None:
    body = """
def serve():
    r = recorder(); r.arm()
    started.set()
    # A daemon thread inside torch's C++ at the interpreter's end aborts, profiler or not: it ends with its recording.
    while r.state.value != "released":
        work(); r.step()
started = threading.Event()
threading.Thread(target=serve, daemon=True).start()
started.wait()
time.sleep(0.2)
"""
    code, _, err = run_child(tmp_path, body, thawed=True)
    assert code == 0, err
    assert_whole(only_session(tmp_path))


def test_a_file_system_that_is_full_at_export_leaves_nothing_half_written(tmp_path: Path) -> None:
    body = """
try:
    with record(RecordPlan(with_stack=True), root=root) as recorder:
        work(2000)
        resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))
except Dsv4profError as error:
    print(type(error).__name__, error.message, "|", error.hint)
    print(recorder.proof.freed)
"""
    code, out, err = run_child(tmp_path, body)
    assert code == 0, err
    assert out.startswith("OutputError"), out
    assert out.rstrip().endswith("True")
    folder = only_session(tmp_path)
    assert not (folder / "rank0.trace.json.gz").exists()
    assert list(folder.glob(".*")) == []
    assert record_of(folder)["outcome"] == "failed"


def test_a_kill_in_the_middle_leaves_nothing_that_looks_whole(tmp_path: Path) -> None:
    child = start(tmp_path, "with record(PLAN, root=root):\n    print('in', flush=True)\n    time.sleep(60)\n")
    assert child.stdout is not None
    assert child.stdout.readline().strip() == "in"
    child.kill()
    finish(child)
    from dsv4prof.recorder.sessions import open_session

    session = open_session(only_session(tmp_path))
    assert not (only_session(tmp_path) / "rank0.trace.json.gz").exists()
    assert session.outcome.value == "incomplete"
    assert session.reason == "rank 0: its process ended without saving a trace"


def test_a_held_profiler_makes_the_script_fail_loudly_with_its_trace_saved(tmp_path: Path) -> None:
    body = """
import dsv4prof.recorder.backends.kineto as kineto
KEPT = []
prepare = kineto.KinetoBackend.prepare
def keeping(self):
    prepare(self)
    KEPT.append(self._profiler)
kineto.KinetoBackend.prepare = keeping
with record(PLAN, root=root):
    work()
"""
    code, _, err = run_child(tmp_path, body, thawed=True)
    assert code == 1
    assert "LifetimeError: the profiler is still alive after its release" in err
    assert "KEPT" in err
    folder = only_session(tmp_path)
    assert (folder / "rank0.trace.json.gz").exists()
    assert not record_of(folder)["windows"][0]["release"]["freed"]


def test_a_recording_that_cannot_begin_leaves_no_session(tmp_path: Path) -> None:
    body = """
with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
    try:
        with record(PLAN, root=root): work()
    except Dsv4profError as error:
        print(error.message)
"""
    code, out, err = run_child(tmp_path, body)
    assert code == 0, err
    assert "another torch profiler" in out
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("body", "outcome"),
    [
        ("thread = threading.Thread(target=work); thread.start(); thread.join()", "failed"),
        ("time.sleep(0.01)", "failed"),
        ("thread = threading.Thread(target=work); thread.start(); thread.join(); work()", "complete"),
    ],
    ids=["other thread", "nothing", "both"],
)
@pytest.mark.parametrize("with_stack", [False, True])
def test_a_trace_without_any_operator_is_not_called_complete(
    tmp_path: Path, body: str, outcome: str, with_stack: bool
) -> None:
    code, _, err = run_child(tmp_path, f"with record(RecordPlan(with_stack={with_stack}), root=root):\n    {body}")
    assert code == 0, err
    folder = only_session(tmp_path)
    assert (folder / "rank0.trace.json.gz").exists()
    assert record_of(folder)["outcome"] == outcome
    assert ("recording is per thread" in (record_of(folder)["reason"] or "")) == (outcome == "failed")


@pytest.mark.parametrize(
    "where", ["root=Path('traces')", "session=create_session(Path('traces'), name='t', world_size=1)"]
)
def test_a_program_that_changes_its_directory_keeps_its_trace(tmp_path: Path, where: str) -> None:
    body = f"""
os.chdir(root)
os.mkdir("elsewhere")
with record(PLAN, {where}):
    work()
    os.chdir("elsewhere")
    work()
"""
    code, _, err = run_child(tmp_path, body)
    assert code == 0, err
    assert_whole(only_session(tmp_path / "traces"))
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.parametrize("error", ["ValueError('\\ud800')", "Speechless()"], ids=["surrogate", "raises"])
def test_an_odd_exception_ends_the_session_and_goes_on_as_itself(tmp_path: Path, error: str) -> None:
    body = f"""
class Speechless(Exception):
    def __str__(self): raise RuntimeError("not even this")
sys.argv.append(os.fsdecode(b"\\xff"))
try:
    with record(PLAN, root=root):
        work()
        raise {error}
except Exception as error:
    print(type(error).__name__)
"""
    code, out, err = run_child(tmp_path, body)
    assert code == 0, err
    assert out.split() == [error.split("(")[0]]
    folder = only_session(tmp_path)
    assert_whole(folder)
    assert json.loads((folder / "manifest.json").read_text())["outcome"] == "incomplete"


@pytest.mark.parametrize(
    ("asked", "error", "words"),
    [
        ("name='n' * 300", "UsageError", "300 characters"),
        ("root='\\0x'", "OutputError", "cannot write to"),
        ("root='\\ud800'", "OutputError", "cannot write to"),
        ("session='\\0x'", "InputError", "is no session"),
    ],
)
def test_a_name_that_no_file_system_takes_is_refused(tmp_path: Path, asked: str, error: str, words: str) -> None:
    body = f"""
os.chdir(root)
try:
    with record(PLAN, {asked}): work()
except Dsv4profError as error:
    print(type(error).__name__, ascii(error.message), error.hint is not None)
"""
    code, out, err = run_child(tmp_path, body)
    assert code == 0, err
    assert out.startswith(error)
    assert words in out
    assert out.rstrip().endswith("True")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("raised", [False, True])
def test_a_session_removed_while_recording_is_named(tmp_path: Path, raised: bool) -> None:
    body = f"""
import shutil
try:
    with record(PLAN, root=root) as recorder:
        work()
        shutil.rmtree(next(root.iterdir()))
        if {raised}: raise ValueError("boom")
except (Dsv4profError, ValueError) as error:
    print(type(error).__name__, error)
print(recorder.state.value, recorder.proof.freed)
"""
    code, out, err = run_child(tmp_path, body)
    assert code == 0, err
    assert out.startswith("ValueError boom" if raised else "OutputError the session's folder is gone")
    assert out.rstrip().endswith("released True")
    assert list(tmp_path.iterdir()) == []


def test_many_sessions_in_one_process_do_not_grow_it(tmp_path: Path) -> None:
    body = """
import psutil
me, sizes = psutil.Process(), []
for _ in range(30):
    with record(PLAN, root=root): work(1000)
    sizes.append(me.memory_info().rss)
print((sizes[-1] - sizes[9]) >> 20, me.num_fds(), me.num_threads())
"""
    code, out, err = run_child(tmp_path, body)
    assert code == 0, err
    grown_mib, descriptors, _ = map(int, out.split())
    assert grown_mib < 20
    assert descriptors < 20
    assert len(list(tmp_path.iterdir())) == 30


TORCHRUN = """
for _ in range(2):
    with record(PLAN, root=root, name="whole"): work()
try:
    with record(RecordPlan(with_stack=True), root=root, name="fails"):
        work(2000)
        if os.environ["RANK"] == "1":
            resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))
except Dsv4profError:
    pass
"""


@pytest.fixture(scope="module")
def torchrun(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, float]:
    """Two ranks that record three times, the last time with a rank that cannot save: sessions, stderr, seconds."""
    folder = tmp_path_factory.mktemp("torchrun")
    script = folder / "script.py"
    script.write_text(PREAMBLE + ROOT + TORCHRUN)
    began = time.monotonic()
    child = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
         str(script), str(folder / "sessions")],
        capture_output=True, text=True, timeout=120, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=False,
    )  # fmt: skip
    assert child.returncode == 0, child.stderr
    return folder / "sessions", child.stderr, time.monotonic() - began


def named(root: Path, name: str) -> list[tuple[Path, Session]]:
    return [(folder, session) for folder, session in list_sessions(root) if name in folder.name]


def test_torchrun_ranks_share_one_session(torchrun: tuple[Path, str, float]) -> None:
    root, _, _ = torchrun
    assert list(root.glob(".*")) == [], "the note that led the ranks together is gone"
    sessions = named(root, "whole")
    assert len(sessions) == 2, "one a recording, not one a rank"
    for folder, session in sessions:
        assert session.outcome.value == "complete"
        assert [rank.coordinates.rank for rank in session.ranks] == [0, 1]
        assert all((folder / str(rank.trace)).is_file() for rank in session.ranks)


def test_a_rank_whose_export_fails_is_named_and_nobody_waits_for_it(torchrun: tuple[Path, str, float]) -> None:
    root, said, seconds = torchrun
    assert seconds < 60
    assert "rank 1 failed: " in said
    assert "rank 0 saved" in said
    ((folder, session),) = named(root, "fails")
    assert [rank.outcome.value for rank in session.ranks] == ["complete", "failed"]
    assert (folder / "rank0.trace.json.gz").exists()
