"""Each illegal move has a sentence, and whatever happens the recording is saved or says why not."""

from __future__ import annotations

import gzip
import json
import threading
from pathlib import Path

import pytest

from dsv4prof.errors import LifetimeError, OutputError, UsageError
from dsv4prof.model.session import Outcome, RankCoordinates
from dsv4prof.recorder.manager import Recorder
from dsv4prof.recorder.plan import RecordPlan
from dsv4prof.recorder.process import holder, yield_claim
from dsv4prof.recorder.sessions import record_of
from dsv4prof.recorder.sink import RankSink
from dsv4prof.recorder.standalone import require_freed
from dsv4prof.recorder.states import State
from fake_backend import FakeBackend, making, trace_of


@pytest.fixture
def sink(tmp_path: Path) -> RankSink:
    return RankSink(tmp_path, RankCoordinates(rank=0, world_size=1))


def states_of(sink: RankSink, backend: FakeBackend, plan: RecordPlan, steps: int) -> list[State]:
    recorder = Recorder(plan, sink, making(backend))
    recorder.arm()
    seen = [recorder.state]
    for _ in range(steps):
        recorder.step()
        if recorder.state is State.EXPORTING:
            assert recorder.wait(10)
        seen.append(recorder.state)
    recorder.release()
    return seen


def test_a_window_opens_and_closes_at_the_planned_steps(sink: RankSink) -> None:
    backend = FakeBackend()
    seen = states_of(sink, backend, RecordPlan(wait=1, warmup=1, active=2), 5)
    assert seen == [State.ARMED, State.ARMED, State.RECORDING, State.RECORDING, State.RELEASED, State.RELEASED]
    assert backend.calls == ["warm_up", "prepare", "start", "stop", "export", "release"]
    assert (sink.record.first_step, sink.record.steps, sink.record.outcome) == (2, 2, Outcome.COMPLETE)
    assert sink.record.events == 2
    assert json.loads(gzip.decompress(trace_of(sink).read_bytes()))["traceEvents"]


@pytest.mark.parametrize(
    ("moves", "words"),
    [
        (["step"], "before it is armed"),
        (["stop"], "never armed"),
        (["arm", "arm"], "armed already|recording already"),
        (["arm", "stop", "stop"], "has been released"),
        (["arm", "stop", "arm"], "make a new one"),
        (["arm", "release", "arm"], "make a new one"),
    ],
)
def test_illegal_moves_have_a_sentence(sink: RankSink, moves: list[str], words: str) -> None:
    recorder = Recorder(RecordPlan(), sink, making(FakeBackend()))
    *legal, illegal = moves
    for move in legal:
        getattr(recorder, move)()
    with pytest.raises(LifetimeError, match=words) as caught:
        getattr(recorder, illegal)()
    assert caught.value.hint
    recorder.release()


def test_a_second_stop_leaves_the_first_trace_alone(sink: RankSink) -> None:
    recorder = Recorder(RecordPlan(), sink, making(FakeBackend()))
    recorder.arm()
    recorder.stop()
    before = trace_of(sink).read_bytes()
    with pytest.raises(LifetimeError):
        recorder.stop()
    assert trace_of(sink).read_bytes() == before
    assert sink.record.outcome is Outcome.COMPLETE


def test_stop_on_another_thread_is_refused_and_a_request_is_obeyed(sink: RankSink) -> None:
    backend = FakeBackend()
    errors: list[Exception] = []
    recorder = Recorder(RecordPlan(active=100), sink, making(backend))
    recorder.arm()

    def elsewhere() -> None:
        try:
            recorder.stop()
        except LifetimeError as error:
            errors.append(error)
        recorder.request_stop("asked by another thread")

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert "another thread" in str(errors[0])
    assert recorder.state is State.RECORDING
    recorder.step()
    assert recorder.wait(10)
    assert (sink.record.outcome, sink.record.reason) == (Outcome.INCOMPLETE, "asked by another thread")
    assert trace_of(sink).exists()


@pytest.mark.parametrize("where", ["stop_error", "export_error"])
@pytest.mark.parametrize("error", [OutputError("disk full"), RuntimeError("kineto says no"), OSError(28, "No space")])
def test_a_failing_export_never_skips_release_nor_reaches_the_step(
    sink: RankSink, where: str, error: Exception
) -> None:
    backend = FakeBackend(**{where: error})
    recorder = Recorder(RecordPlan(active=1), sink, making(backend))
    recorder.arm()
    recorder.step()
    assert recorder.wait(10)
    assert recorder.state is State.RELEASED
    assert backend.calls[-1] == "release"
    assert recorder.proof is not None
    assert recorder.proof.freed
    assert sink.record.outcome is Outcome.FAILED
    assert str(error) in (sink.record.reason or "")
    assert recorder.failure is not None
    assert list(sink.folder.glob(".*")) == [], "no temporary file is left"
    assert not trace_of(sink).exists()


def test_the_block_raises_what_went_wrong_unless_it_raised_itself(sink: RankSink) -> None:
    full = making(FakeBackend(export_error=OutputError("disk full")))
    with pytest.raises(OutputError, match="disk full"), Recorder(RecordPlan(), sink, full):
        pass
    with pytest.raises(ZeroDivisionError), Recorder(RecordPlan(), sink, full):
        raise ZeroDivisionError
    assert holder() is None


def test_an_exception_in_the_block_saves_the_trace_and_says_so(sink: RankSink) -> None:
    with pytest.raises(ValueError, match="boom"), Recorder(RecordPlan(), sink, making(FakeBackend())) as recorder:
        recorder.step()
        raise ValueError("boom")
    assert trace_of(sink).exists()
    assert sink.record.outcome is Outcome.INCOMPLETE
    assert "ValueError: boom" in (sink.record.reason or "")
    assert sink.record.steps == 1


class SpeechlessError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even this")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ValueError("a\ud800b"), "ValueError: a\\ud800b"),
        (SpeechlessError(), "SpeechlessError"),
        (ValueError("nul\x00"), "ValueError: nul\x00"),
        (ValueError("x" * 10**6), "ValueError: xxx"),
    ],
    ids=["surrogate", "raises", "nul", "long"],
)
def test_no_exception_of_the_program_is_too_odd_to_be_recorded(
    sink: RankSink, error: Exception, words: str
) -> None:
    recorder = Recorder(RecordPlan(), sink, making(FakeBackend()))
    with pytest.raises(type(error)) as caught, recorder:
        raise error
    assert caught.value is error
    assert recorder.state is State.RELEASED
    record = record_of(sink.folder, 0)
    assert record is not None
    assert record.outcome is Outcome.INCOMPLETE
    assert words in (record.reason or "")
    assert len(record.reason or "") < 3000


def test_a_block_that_ends_before_its_window_says_so(sink: RankSink) -> None:
    with Recorder(RecordPlan(wait=5), sink, making(FakeBackend())) as recorder:
        recorder.step()
    assert sink.record.outcome is Outcome.INCOMPLETE
    assert "never opened" in (sink.record.reason or "")
    assert not trace_of(sink).exists()


def test_two_recorders_at_once_are_refused_and_the_first_goes_on(sink: RankSink, tmp_path: Path) -> None:
    first = Recorder(RecordPlan(), sink, making(FakeBackend()))
    first.arm()
    second = Recorder(RecordPlan(), RankSink(tmp_path, RankCoordinates(rank=1)), making(FakeBackend()))
    with pytest.raises(LifetimeError, match="another recorder"):
        second.arm()
    assert first.state is State.RECORDING
    assert first.stop().outcome is Outcome.COMPLETE
    second.arm()
    second.stop()


def test_release_is_idempotent_and_a_held_profiler_is_loud(sink: RankSink) -> None:
    backend = FakeBackend()
    held = backend.thing
    with Recorder(RecordPlan(), sink, making(backend)) as recorder:
        pass
    with pytest.raises(LifetimeError, match="still alive") as caught:
        require_freed(recorder)
    assert "local variable 'held'" in str(caught.value)
    assert sink.record.release is not None
    assert not sink.record.release.freed
    assert recorder.release() is recorder.proof
    assert backend.calls.count("release") == 1
    assert held is not None


def test_an_earlier_trace_is_never_overwritten(sink: RankSink) -> None:
    trace_of(sink).write_bytes(b"earlier")
    backend = FakeBackend()
    recorder = Recorder(RecordPlan(), sink, making(backend))
    with pytest.raises(OutputError, match="exists already"):
        recorder.arm()
    assert backend.calls == []
    assert recorder.state is State.NEW
    assert holder() is None


@pytest.mark.parametrize(
    "plan", [{"wait": -1}, {"warmup": -1}, {"active": 0}, {"activities": "tpu"}], ids=lambda plan: next(iter(plan))
)
def test_impossible_plans_are_refused_when_made(plan: dict[str, object]) -> None:
    with pytest.raises(UsageError) as caught:
        RecordPlan(**plan)  # type: ignore[arg-type]
    assert caught.value.hint


def test_the_child_of_a_fork_leaves_the_recording_to_its_parent(sink: RankSink) -> None:
    backend = FakeBackend()
    recorder = Recorder(RecordPlan(), sink, making(backend))
    with recorder:
        written = (sink.folder / "rank0.json").read_bytes()
        recorder.abandon()
        assert recorder.state is State.RELEASED
        recorder.step()
        backend.thing = None
    assert backend.calls == ["warm_up", "prepare", "start", "abandon"]
    assert (sink.folder / "rank0.json").read_bytes() == written
    assert not trace_of(sink).exists()
    yield_claim(recorder)
