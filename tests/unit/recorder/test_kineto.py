"""torch.profiler itself, through the manager: whole files, and really gone afterwards."""

from __future__ import annotations

import gc
import gzip
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from dsv4prof.errors import LifetimeError, OutputError  # noqa: E402
from dsv4prof.model.session import Outcome, RankCoordinates  # noqa: E402
from dsv4prof.recorder.backends.kineto import KinetoBackend  # noqa: E402
from dsv4prof.recorder.holders import frozen_by_the_program  # noqa: E402
from dsv4prof.recorder.manager import Recorder  # noqa: E402
from dsv4prof.recorder.plan import RecordPlan  # noqa: E402
from dsv4prof.recorder.process import holder  # noqa: E402
from dsv4prof.recorder.sink import RankSink, WindowSink  # noqa: E402

HELD: list[Any] = []


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    torch.set_num_threads(1)
    HELD.clear()
    yield
    HELD.clear()
    gc.collect()


def recorder_in(
    folder: Path, plan: RecordPlan | None = None, rank: int = 0, *, mark_steps: bool = False
) -> tuple[Recorder, list[KinetoBackend]]:
    """A recorder, and the backends that it makes: the last one is the open window's."""
    plan = plan or RecordPlan(with_stack=False)
    made: list[KinetoBackend] = []

    def make() -> KinetoBackend:
        made.append(KinetoBackend(plan, metadata={"rank": rank}))
        return made[-1]

    return Recorder(plan, RankSink(folder, RankCoordinates(rank=rank)), make, mark_steps=mark_steps), made


def work() -> None:
    (torch.ones(8, 8) @ torch.ones(8, 8)).sum().item()


def events_of(recorder: Recorder) -> list[dict[str, Any]]:
    return trace_of(recorder)["traceEvents"]


def trace_of(recorder: Recorder) -> dict[str, Any]:
    assert recorder.record.trace is not None
    return json.loads(gzip.decompress((recorder._sink.folder / recorder.record.trace).read_bytes()))


def test_the_trace_holds_the_window_and_only_it(tmp_path: Path) -> None:
    recorder, _ = recorder_in(tmp_path, RecordPlan(wait=1, warmup=1, active=2))
    with recorder:
        for index in range(6):
            with torch.profiler.record_function(f"step{index}"):
                work()
            recorder.step()
    names = {event.get("name") for event in events_of(recorder)}
    assert {"step2", "step3", "aten::_local_scalar_dense"} <= names
    assert not {"step0", "step1", "step4", "step5"} & names
    assert any("test_kineto.py" in str(name) for name in names), "stacks are on by default"
    assert recorder.record.events == len(events_of(recorder))
    assert recorder.record.windows[0].clock is not None


def marks_of(recorder: Recorder) -> list[tuple[str, int]]:
    """Each step mark with the number of products in it."""
    events = events_of(recorder)
    products = [event["ts"] for event in events if event.get("name") == "aten::mm"]
    marks = [event for event in events if str(event.get("name")).startswith("ProfilerStep#")]
    return [
        (mark["name"], sum(mark["ts"] <= at < mark["ts"] + mark["dur"] for at in products))
        for mark in sorted(marks, key=lambda mark: mark["ts"])
    ]


@pytest.mark.parametrize(
    ("plan", "steps", "expected"),
    [
        ({"wait": 1, "active": 2}, 5, [("ProfilerStep#1", 1), ("ProfilerStep#2", 1)]),
        ({}, 2, [("ProfilerStep#0", 1), ("ProfilerStep#1", 1)]),
        ({}, 0, [("ProfilerStep#0", 1)]),
    ],
    ids=["window", "a block that ends early", "a block without steps"],
)
def test_every_finished_step_is_named_and_nothing_else(
    tmp_path: Path, plan: dict[str, int], steps: int, expected: list[tuple[str, int]]
) -> None:
    recorder, _ = recorder_in(tmp_path, RecordPlan(with_stack=False, **plan), mark_steps=True)
    with recorder:
        for _ in range(max(1, steps)):
            work()
            if steps:
                recorder.step()
    assert marks_of(recorder) == expected
    assert recorder.record.steps == min(steps, recorder.plan.active)


def test_a_step_that_was_broken_off_is_no_step(tmp_path: Path) -> None:
    recorder, _ = recorder_in(tmp_path, mark_steps=True)
    with pytest.raises(ValueError, match="boom"), recorder:
        work()
        recorder.step()
        work()
        raise ValueError("boom")
    assert marks_of(recorder) == [("ProfilerStep#0", 1)]


def test_steps_are_named_only_when_asked(tmp_path: Path) -> None:
    recorder, _ = recorder_in(tmp_path)
    with recorder:
        work()
        recorder.step()
    assert marks_of(recorder) == []


def test_metadata_names_the_rank(tmp_path: Path) -> None:
    recorder, _ = recorder_in(tmp_path, rank=3)
    with recorder:
        work()
    assert recorder.record.trace == "rank3.trace.json.gz"
    assert trace_of(recorder)["dsv4prof_rank"] == {"rank": 3}


def test_what_the_interpreter_froze_itself_is_no_frozen_heap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python 3.12 starts with 375 frozen objects; thawing and freezing for their sake would freeze the whole heap."""
    monkeypatch.setattr(gc, "get_freeze_count", lambda: 375)
    assert frozen_by_the_program() == 0
    monkeypatch.setattr(gc, "get_freeze_count", lambda: 150_000)
    assert frozen_by_the_program() == 150_000


@pytest.mark.parametrize("collector", ["enabled", "disabled", "frozen"])
def test_the_profiler_is_gone_when_release_returns(tmp_path: Path, collector: str) -> None:
    recorder, made = recorder_in(tmp_path)
    recorder.arm()
    work()
    assert made[-1]._profiler is not None
    if collector == "disabled":
        gc.disable()
    if collector == "frozen":
        gc.freeze()
    try:
        recorder.stop()
    finally:
        gc.enable()
        gc.unfreeze()
    proof = recorder.proof
    assert proof is not None
    assert (proof.freed, proof.holders) == (True, [])
    assert (proof.frozen_objects > 0) == (collector == "frozen")
    assert proof.collect_ns > 0
    assert proof.rss_after_bytes > 0


def test_plain_torch_leaves_the_profiler_alive() -> None:
    """The fault that release answers: without it these tests would prove nothing."""
    import weakref

    gc.collect()
    gc.disable()
    try:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
            work()
        ref = weakref.ref(profiler)
        del profiler
        assert ref() is not None
    finally:
        gc.enable()


@pytest.mark.parametrize("frozen", [False, True])
def test_a_holder_is_named(tmp_path: Path, frozen: bool) -> None:
    pytest.importorskip("objgraph")
    recorder, made = recorder_in(tmp_path)
    recorder.arm()
    HELD.append({"kept": made[-1]._profiler})
    if frozen:
        gc.freeze()
    try:
        recorder.stop()
        if frozen:
            assert gc.get_freeze_count() > 0, "what was frozen is frozen again"
    finally:
        gc.unfreeze()
    proof = recorder.proof
    assert proof is not None
    assert not proof.freed
    (holder,) = proof.holders
    assert "HELD" in holder
    assert "'kept'" in holder
    assert (proof.note is not None and "frozen" in proof.note) == frozen


def test_a_local_variable_that_holds_is_named(tmp_path: Path) -> None:
    recorder, made = recorder_in(tmp_path)
    recorder.arm()
    backend_profiler = made[-1]._profiler
    recorder.stop()
    assert recorder.proof is not None
    (holder,) = recorder.proof.holders
    assert "local variable 'backend_profiler' of test_a_local_variable_that_holds_is_named" in holder
    del backend_profiler


@pytest.mark.parametrize("name", ['a"b', "back\\slash", "new\nline", "bell\x07", 'both\\" "', 'tail"', '"", "pid": 1'])
def test_names_that_break_kinetos_json_are_mended(tmp_path: Path, name: str) -> None:
    if name.startswith('""') and tuple(map(int, torch.__version__.split(".")[:2])) < (2, 13):
        pytest.skip("a name that reads as valid JSON needs torch's Python exporter, which came with 2.13")
    recorder, _ = recorder_in(tmp_path)
    with recorder, torch.profiler.record_function(name):
        work()
    annotations = [event for event in events_of(recorder) if event.get("cat") == "user_annotation"]
    assert len(annotations) == 1
    if '"' in name:
        # torch itself turns a backslash into a slash and drops control characters; quotes it pastes as they are.
        assert annotations[0]["name"] in (name, name.replace("\\", "/"))
    assert recorder.record.outcome is Outcome.COMPLETE


def test_a_foreign_profiler_is_refused(tmp_path: Path) -> None:
    recorder, _ = recorder_in(tmp_path)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
        with pytest.raises(LifetimeError, match="another torch profiler"):
            recorder.arm()
        work()
    assert holder() is None


def test_a_foreign_profiler_of_another_thread_is_refused_and_goes_on(tmp_path: Path) -> None:
    running, enough = threading.Event(), threading.Event()
    counted: list[int] = []

    def foreign() -> None:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
            running.set()
            work()
            enough.wait(30)
        counted.append(len(profiler.events()))

    thread = threading.Thread(target=foreign)
    thread.start()
    running.wait(30)
    recorder, _ = recorder_in(tmp_path)
    try:
        with pytest.raises(LifetimeError, match="another torch profiler"):
            recorder.arm()
    finally:
        enough.set()
        thread.join()
    assert counted[0] > 0


def test_a_foreign_profiler_that_starts_while_waiting_ends_ours_clearly(tmp_path: Path) -> None:
    recorder, _ = recorder_in(tmp_path, RecordPlan(wait=1, active=1))
    recorder.arm()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
        recorder.step()
        work()
    assert recorder.wait(30)
    assert isinstance(recorder.failure, LifetimeError)
    assert "another torch profiler" in (recorder.record.reason or "")
    assert recorder.record.outcome is Outcome.FAILED
    assert not torch.autograd._profiler_enabled()


def test_torch_failing_in_silence_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorder, _ = recorder_in(tmp_path)
    monkeypatch.setattr(WindowSink, "json_path", tmp_path / "gone" / "x.json")
    recorder.arm()
    work()
    with pytest.raises(OutputError, match="torch wrote no trace: is the folder gone or the disk full"):
        recorder.stop()
    assert recorder.record.outcome is Outcome.FAILED
    assert recorder.proof is not None
    assert recorder.proof.freed


def test_a_recorder_dropped_while_running_does_not_leave_kineto_on(tmp_path: Path) -> None:
    recorder, _ = recorder_in(tmp_path)
    recorder.arm()
    assert torch.autograd._profiler_enabled()
    recorder.release()
    assert not torch.autograd._profiler_enabled()
