"""Ways in which a program once lost its trace, its profiler or itself: each in a child, judged by status and files."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

pytest.importorskip("torch")

from recorded_child import assert_whole, record_of, run_child

MANAGED = "from dsv4prof.recorder.control import ProfilerManager\n"


def run(tmp_path: Path, body: str) -> tuple[int, str, str]:
    return run_child(tmp_path, MANAGED + body)


def sessions(root: Path) -> list[Path]:
    return sorted((path for path in root.iterdir() if path.is_dir()), key=lambda path: path.stat().st_mtime_ns)


def test_stops_that_race_the_first_step_leave_no_recorder_behind(tmp_path: Path) -> None:
    body = """
import random
manager = ProfilerManager(root=root)
manager.warm_up()
over = threading.Event()
def loop():
    while not over.is_set(): work(1); manager.step(); time.sleep(0.0003)
thread = threading.Thread(target=loop); thread.start()
plan = RecordPlan(active=None, with_stack=False)
for _ in range(40):
    manager.wait(20)
    manager.start(plan); time.sleep(random.random() * 0.004); manager.stop(wait_s=20)
manager.wait(20)
print(manager.status().profilers_alive, torch.autograd.profiler._is_profiler_enabled)
over.set(); thread.join(); manager.close()
"""
    code, out, err = run(tmp_path, body)
    assert code == 0, err
    assert out.split() == ["0", "False"]


def test_a_thread_that_ends_while_it_is_recorded_saves_its_trace(tmp_path: Path) -> None:
    body = """
manager = ProfilerManager(root=root)
manager.start(RecordPlan(active=None, with_stack=False))
def serve():
    for _ in range(5): manager.begin_step(); work(); manager.end_step()
first = threading.Thread(target=serve); first.start(); first.join()
print(manager.wait(20), manager.status().state, torch.autograd.profiler._is_profiler_enabled)
manager.start(RecordPlan(active=2, with_stack=False))
second = threading.Thread(target=serve); second.start(); second.join()
print(manager.wait(20), manager.status().last.outcome)
"""
    code, out, err = run(tmp_path, body)
    assert code == 0, err
    assert out.splitlines() == ["True idle False", "True complete"]
    first, second = sessions(tmp_path)
    assert_whole(first)
    assert "its thread ended" in record_of(first)["reason"]
    assert_whole(second)


@pytest.mark.parametrize(
    "body",
    [
        "manager = ProfilerManager(root=root)\nwith record(PLAN, root=root): work(); end()",
        "first, second = ProfilerManager(root=root), ProfilerManager(root=root)\nfirst.close()\n"
        "second.start(PLAN); second.step(); work(); second.step(); end()",
        "manager = ProfilerManager(root=root)\nmanager.start(PLAN); manager.step(); work(); manager.step(); end()",
    ],
    ids=["a block beside an idle manager", "the second of two managers", "a manager"],
)
def test_sigterm_saves_whoever_records(tmp_path: Path, body: str) -> None:
    end = "def end(): os.kill(os.getpid(), signal.SIGTERM); time.sleep(30)\n"
    code, _, err = run(tmp_path, end + body)
    assert code == 128 + signal.SIGTERM, err
    assert_whole(sessions(tmp_path)[-1])


def test_sigterm_in_the_middle_of_a_release_ends_the_process(tmp_path: Path) -> None:
    body = """
heap = [[number] for number in range(1_500_000)]
manager = ProfilerManager(root=root)
manager.start(RecordPlan(active=1, with_stack=False)); manager.step(); work(); manager.step()
threading.Timer(0.05, lambda: os.kill(os.getpid(), signal.SIGTERM)).start()
end = time.time() + 30
while time.time() < end: manager.poll(); time.sleep(0.001)
"""
    began = time.monotonic()
    code, _, err = run(tmp_path, body)
    assert time.monotonic() - began < 25
    assert code in (128 + signal.SIGTERM, -signal.SIGTERM), err
    assert_whole(sessions(tmp_path)[-1])


@pytest.mark.parametrize("number", ["SIGTERM", "SIGINT"])
def test_a_signal_that_arrives_while_torch_stops_waits_for_that(tmp_path: Path, number: str) -> None:
    body = f"""
import dsv4prof.recorder.backends.kineto as kineto
stop = kineto.KinetoBackend._end
def slow(self, profiler):
    os.kill(os.getpid(), signal.{number})
    time.sleep(0.2)
    stop(self, profiler)
with record(PLAN, root=root) as recorder:
    work(); recorder.step()
    kineto.KinetoBackend._end = slow
"""
    code, _, _ = run(tmp_path, body)
    assert code in (128 + signal.SIGTERM, -signal.SIGINT)
    assert_whole(sessions(tmp_path)[-1])


def test_a_block_left_on_another_thread_says_so_and_is_saved_by_its_own(tmp_path: Path) -> None:
    body = """
def generate():
    with record(PLAN, root=root):
        work(); yield 1
items = generate()
entered, may_end = threading.Event(), threading.Event()
def enter(): next(items); entered.set(); may_end.wait(60)
owner = threading.Thread(target=enter); owner.start(); entered.wait()
items.close()
may_end.set(); owner.join()
time.sleep(1)
print(torch.autograd.profiler._is_profiler_enabled)
with record(RecordPlan(with_stack=False), root=root): work()
"""
    code, out, err = run(tmp_path, body)
    assert code == 0, err
    assert "another thread" in err
    assert out.splitlines()[-1] == "False"
    for folder in sessions(tmp_path):
        assert_whole(folder)


def test_a_loop_that_makes_warnings_errors_gets_none(tmp_path: Path) -> None:
    body = """
import warnings; warnings.simplefilter("error")
manager = ProfilerManager(root=root)
manager.start(RecordPlan(active=2, stages=("decode",), with_stack=False))
for mode in ("FROM_TOMORROW", "DECODE", "DECODE", "DECODE"): manager.begin_step(mode); work(); manager.end_step()
print(manager.wait(20), manager.status().last.steps)
manager.start(RecordPlan(stages=("decode",)))
manager.step()
print(manager.status().state, manager.status().last.outcome)
"""
    code, out, err = run(tmp_path, body)
    assert code == 0, err
    assert out.splitlines() == ["True 2", "idle failed"]


def test_start_step_counts_the_programs_steps_in_either_way_of_announcing(tmp_path: Path) -> None:
    body = """
for announce in ("step", "begin_step"):
    manager = ProfilerManager(root=root)
    manager.warm_up()
    seen, number = [], 0
    def go(steps):
        global number
        for _ in range(steps):
            getattr(manager, announce)()
            if announce == "step": number += 1
            if manager.status().state == "recording": seen.append(number)
            if announce != "step": number += 1
    go(5); manager.start(RecordPlan(active=1, start_step=7, with_stack=False)); go(5)
    print(announce, seen[0]); manager.close()
"""
    code, out, err = run(tmp_path, body)
    assert code == 0, err
    assert out.splitlines() == ["step 7", "begin_step 7"]
