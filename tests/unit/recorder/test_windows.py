"""Several windows of one plan, limits, ranks that are left out, and names that never collide."""

from __future__ import annotations

import multiprocessing
import threading
import time
from pathlib import Path

import pytest

from dsv4prof.errors import OutputError, UsageError
from dsv4prof.model.session import EndedBy, Outcome, RankCoordinates
from dsv4prof.recorder import limits
from dsv4prof.recorder.manager import Recorder
from dsv4prof.recorder.plan import RecordPlan
from dsv4prof.recorder.sessions import create_session, open_session
from dsv4prof.recorder.sink import RankSink, rank_name
from dsv4prof.recorder.states import State
from fake_backend import FakeBackend, making, trace_of


@pytest.fixture
def sink(tmp_path: Path) -> RankSink:
    return RankSink(create_session(tmp_path, name="t", world_size=1), RankCoordinates(rank=0, world_size=1))


def test_each_stage_gets_a_trace_and_a_release_of_its_own(sink: RankSink) -> None:
    made: list[FakeBackend] = []

    def make() -> FakeBackend:
        made.append(FakeBackend())
        return made[-1]

    with Recorder(RecordPlan(active=2, stages=("prefill", "decode")), sink, make) as recorder:
        for mode in ["EXTEND", "DECODE", "DECODE", "DECODE"]:
            recorder.begin_step(mode)
            recorder.end_step()
    record = sink.record
    assert record.outcome is Outcome.COMPLETE
    assert [(w.name, w.steps, w.first_step, w.ended_by) for w in record.windows] == [
        ("prefill", 1, 0, EndedBy.STAGE_CHANGE), ("decode", 2, 1, EndedBy.MAX_STEPS),
    ]  # fmt: skip
    assert record.traces == ["rank0.prefill.trace.json.gz", "rank0.decode.trace.json.gz"]
    assert all(window.release is not None and window.release.freed for window in record.windows)
    assert [backend.calls.count("release") for backend in made[1:]] == [1, 1]
    assert (record.steps, record.events) == (3, 4)


def test_a_stage_that_never_comes_is_named_and_the_other_is_kept(sink: RankSink) -> None:
    with Recorder(RecordPlan(active=1, stages=("prefill", "decode")), sink, making(FakeBackend())) as recorder:
        recorder.begin_step("prefill")
    assert sink.record.outcome is Outcome.INCOMPLETE
    assert "no step of decode came" in (sink.record.reason or "")
    assert trace_of(sink, "prefill").exists()


def test_step_alone_cannot_follow_a_plan_by_stage(sink: RankSink) -> None:
    with Recorder(RecordPlan(stages=("decode",)), sink, making(FakeBackend())) as recorder, pytest.raises(UsageError):
        recorder.step()


def test_a_slow_export_does_not_hold_up_the_steps_and_release_waits_for_a_boundary(sink: RankSink) -> None:
    release = threading.Event()
    backend = FakeBackend(export_waits_for=release)
    recorder = Recorder(RecordPlan(active=1), sink, making(backend))
    recorder.arm()
    recorder.step()
    for _ in range(3):
        recorder.step()
        assert recorder.state is State.EXPORTING
    assert "release" not in backend.calls
    release.set()
    deadline = time.monotonic() + 10
    while recorder.state is not State.RELEASED and time.monotonic() < deadline:
        recorder.step()
        time.sleep(0.01)
    proof = sink.record.windows[0].release
    assert proof is not None
    assert proof.place == "between two steps"


def test_the_release_of_one_window_waits_until_the_next_one_is_over(sink: RankSink) -> None:
    backend = FakeBackend()
    recorder = Recorder(RecordPlan(active=1, windows=2, wait=0), sink, making(backend))
    recorder.arm()
    recorder.step()
    assert recorder.state is State.RECORDING
    time.sleep(0.2)
    assert backend.calls.count("release") == 0
    recorder.step()
    assert recorder.wait(10)
    assert backend.calls.count("release") == 2


@pytest.mark.parametrize("active", [1000, None])
def test_the_size_limit_ends_the_window_early_and_keeps_it(
    sink: RankSink, monkeypatch: pytest.MonkeyPatch, active: int | None
) -> None:
    sizes = iter([100 << 20] + [(100 + 10 * step) << 20 for step in range(100)])
    monkeypatch.setattr("dsv4prof.recorder.window.resident_bytes", lambda: next(sizes))
    recorder = Recorder(RecordPlan(active=active, size_limit_mb=35), sink, making(FakeBackend()))
    recorder.arm()
    for _ in range(20):
        recorder.step()
    assert recorder.wait(10)
    (window,) = sink.record.windows
    assert window.ended_by is EndedBy.SIZE_LIMIT
    assert 3 <= window.steps <= 5
    assert window.reason == "the size limit of 35 MiB was reached"
    assert sink.record.outcome is (Outcome.COMPLETE if active is None else Outcome.INCOMPLETE)
    assert trace_of(sink).exists()


def test_a_nearly_full_disk_lowers_the_size_limit(sink: RankSink, monkeypatch: pytest.MonkeyPatch) -> None:
    class Grown:
        growth_bytes = 5 << 20

    usage = type("Usage", (), {"free": 10 << 20})
    budget = limits.Limits(RecordPlan(size_limit_mb=None), sink.folder)
    monkeypatch.setattr(limits.shutil, "disk_usage", lambda _: usage)
    budget.open()
    hit = budget.exceeded(Grown())
    assert hit is not None
    assert "free space" in hit.reason


def test_the_time_limit_ends_the_window_and_the_next_one_still_opens(sink: RankSink) -> None:
    plan = RecordPlan(active=1000, windows=2, wait=0, time_limit_s=0.05)
    recorder = Recorder(plan, sink, making(FakeBackend()))
    recorder.arm()
    deadline = time.monotonic() + 10
    while recorder.state is not State.RELEASED and time.monotonic() < deadline:
        recorder.step()
        time.sleep(0.01)
    assert [window.ended_by for window in sink.record.windows] == [EndedBy.TIME_LIMIT] * 2
    assert sink.record.outcome is Outcome.INCOMPLETE


def test_a_fault_of_the_profiler_ends_the_recording_and_not_the_program(sink: RankSink) -> None:
    backend = FakeBackend(start_error=ZeroDivisionError("a fault of ours"))
    recorder = Recorder(RecordPlan(wait=1), sink, making(backend))
    recorder.arm()
    recorder.step()
    recorder.step()
    assert recorder.wait(10)
    assert sink.record.outcome is Outcome.FAILED
    assert "a fault of ours" in (sink.record.reason or "")
    assert backend.calls[-1] == "release"


def test_a_trace_of_other_threads_work_is_a_failed_recording(sink: RankSink) -> None:
    backend = FakeBackend()
    backend.thread += 1
    with Recorder(RecordPlan(), sink, making(backend)):
        pass
    assert sink.record.outcome is Outcome.FAILED
    assert "only those of other threads" in (sink.record.reason or "")
    assert sink.record.windows[0].events_by_thread == {str(backend.thread): 1}


def test_a_rank_that_the_plan_leaves_out_is_skipped_and_the_session_is_whole(tmp_path: Path) -> None:
    folder = create_session(tmp_path, name="t", world_size=2)
    kept, left_out = (RankSink(folder, RankCoordinates(rank=rank, world_size=2)) for rank in range(2))
    with Recorder(RecordPlan(), kept, making(FakeBackend())):
        pass
    skipped = Recorder(RecordPlan(), left_out, making(FakeBackend()))
    skipped.skip()
    skipped.step()
    session = open_session(folder)
    assert [record.outcome for record in session.ranks] == [Outcome.COMPLETE, Outcome.SKIPPED]
    assert session.outcome is Outcome.COMPLETE


def test_names_carry_every_dimension_that_has_more_than_one_rank() -> None:
    sizes = {"tp": 2, "dp": 2, "pp": 1, "ep": 2}
    names = {
        rank_name(RankCoordinates(rank=4 * dp + 2 * ep + tp, tp=tp, dp=dp, pp=0, ep=ep, sizes=sizes))
        for tp in range(2) for dp in range(2) for ep in range(2)
    }  # fmt: skip
    assert len(names) == 8
    assert all("tp" in name and "dp" in name and "ep" in name and "pp" not in name for name in names)


def _record_as_rank_0(folder: str, ready: object, barrier: object) -> None:
    sink = RankSink(Path(folder), RankCoordinates(rank=0, world_size=1))
    with Recorder(RecordPlan(), sink, making(FakeBackend())):
        barrier.wait(20)  # type: ignore[attr-defined]


def test_two_processes_that_call_themselves_the_same_rank_both_keep_their_trace(tmp_path: Path) -> None:
    folder = create_session(tmp_path, name="t", world_size=1)
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(2)
    writers = [context.Process(target=_record_as_rank_0, args=(str(folder), None, barrier)) for _ in range(2)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
    assert [writer.exitcode for writer in writers] == [0, 0]
    assert len(list(folder.glob("rank0*.trace.json.gz"))) == 2
    assert [record.outcome for record in open_session(folder).ranks] == [Outcome.COMPLETE, Outcome.COMPLETE]


def test_a_second_recording_into_the_same_session_is_refused_while_the_first_one_lasts(sink: RankSink) -> None:
    waits = threading.Event()
    first = Recorder(RecordPlan(active=1), sink, making(FakeBackend(export_waits_for=waits)))
    first.arm()
    first.step()
    second = RankSink(sink.folder, RankCoordinates(rank=0, world_size=1))
    with pytest.raises(OutputError, match="already records rank 0"):
        second.preflight()
    waits.set()
    assert first.wait(10)
    with pytest.raises(OutputError, match="exists already"):
        RankSink(sink.folder, RankCoordinates(rank=0, world_size=1)).preflight()


def test_equal_ranks_and_pids_of_two_hosts_do_not_share_a_file(tmp_path: Path) -> None:
    folder = create_session(tmp_path, name="t", world_size=1)
    sinks = [RankSink(folder, RankCoordinates(rank=0, world_size=1, host=host)) for host in ("n0", "n1")]
    for sink in sinks:
        sink.preflight()
        sink.update(outcome=Outcome.RECORDING)
    assert len({sink.window("").trace_path for sink in sinks}) == 2
    assert [record.coordinates.host for record in open_session(folder).ranks] == ["n0", "n1"]


def test_memory_that_the_program_frees_does_not_count_against_growth(
    sink: RankSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = iter([1200 << 20, 100 << 20] + [(100 + 10 * step) << 20 for step in range(100)])
    monkeypatch.setattr("dsv4prof.recorder.window.resident_bytes", lambda: next(sizes))
    recorder = Recorder(RecordPlan(active=1000, size_limit_mb=35), sink, making(FakeBackend()))
    recorder.arm()
    for _ in range(20):
        recorder.step()
    assert recorder.wait(10)
    assert sink.record.windows[0].ended_by is EndedBy.SIZE_LIMIT


def test_what_was_saved_whole_is_of_use_whatever_failed_after_it(
    sink: RankSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    def export_files(self: FakeBackend, base: Path) -> dict[str, Path]:
        raise OutputError("no place for the snapshot")

    monkeypatch.setattr(FakeBackend, "export_files", export_files)
    recorder = Recorder(RecordPlan(active=1), sink, making(FakeBackend()))
    recorder.arm()
    recorder.step()
    assert recorder.wait(10)
    assert (sink.record.outcome, sink.record.reason) == (Outcome.INCOMPLETE, "no place for the snapshot")
    assert trace_of(sink).exists()
