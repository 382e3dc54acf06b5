"""One owner and one state for a profiler, because torch's own can kill the process that uses it slightly wrong.

Stopping twice, stopping on another thread, two profilers at once and an exit while recording all end in a crash in
plain torch; a full disk ends in an empty file and no error; a dropped profiler is destroyed later by a random
collection. Here each move is allowed in one state, everything entered is left through one ExitStack, and release is
proved.
"""

from __future__ import annotations

import atexit
import threading
import time
from contextlib import ExitStack
from enum import Enum
from types import TracebackType
from typing import Any

from dsv4prof.errors import Dsv4profError, LifetimeError, OutputError
from dsv4prof.model.session import ClockAnchor, Outcome, RankRecord, ReleaseProof
from dsv4prof.recorder.backends import Backend
from dsv4prof.recorder.marks import disown_unfinished
from dsv4prof.recorder.plan import RecordPlan
from dsv4prof.recorder.process import claim, yield_claim
from dsv4prof.recorder.release import release_with_proof
from dsv4prof.recorder.sink import RankSink, require_folder
from dsv4prof.recorder.wording import describe

_EXIT_PATIENCE_S = 10.0
# Whether other threads worked or nobody did cannot be told apart, and neither trace can be analysed.
_NO_WORK = (
    "no operator was recorded: recording is per thread, and the thread that armed the recorder ran none in the window"
)


class State(Enum):
    """Where a recorder is in its one life."""

    NEW = "new"
    ARMED = "armed"
    RECORDING = "recording"
    EXPORTING = "exporting"
    RELEASED = "released"


_ILLEGAL = {
    ("arm", State.ARMED): "the recorder is armed already",
    ("arm", State.RECORDING): "the recorder is recording already",
    ("arm", State.EXPORTING): "the recorder is exporting; make a new one for the next window",
    ("arm", State.RELEASED): "the recorder has been released; make a new one for each window",
    ("step", State.NEW): "the recorder counts no steps before it is armed",
    ("step", State.EXPORTING): "the recorder is exporting; a step cannot end inside it",
    ("stop", State.NEW): "the recorder is not recording: it was never armed",
    ("stop", State.EXPORTING): "the recorder is not recording any more: it is exporting",
    ("stop", State.RELEASED): "the recorder is not recording any more: it has been released",
}


class Recorder:
    """Records one window of steps of the thread that armed it, into one rank's part of a session.

    `with Recorder(plan, sink, backend) as recorder:` arms, `recorder.step()` marks the end of each step, and leaving
    the block saves what was recorded, whatever happened. `request_stop` may be called from any thread or signal
    handler. Errors while starting or saving never reach `step()`, which belongs to the profiled program: they are in
    `failure`, in the record, and raised by `stop()`. `mark_steps` names each recorded step in the trace, for programs
    that do not do so themselves; a block without any `step()` is one step. In the child of a fork the recorder counts
    as released and leaves everything to the parent.
    """

    def __init__(self, plan: RecordPlan, sink: RankSink, backend: Backend, *, mark_steps: bool = False) -> None:
        self.plan = plan
        self.mark_steps = mark_steps
        self.failure: Dsv4profError | None = None
        self._sink = sink
        self._backend = backend
        self._state = State.NEW
        self._owner: int | None = None
        self._stack = ExitStack()
        self._prepared = False
        self._steps_done = 0
        self._first_step = 0
        self._proof: ReleaseProof | None = None
        self._stop_reason: str | None = None
        self._done = threading.Event()

    @property
    def state(self) -> State:
        return self._state

    @property
    def steps_done(self) -> int:
        """Steps since arming, recorded or not."""
        return self._steps_done

    @property
    def record(self) -> RankRecord:
        """What the session says of this rank now."""
        return self._sink.record

    @property
    def proof(self) -> ReleaseProof | None:
        """How the release went; None before it."""
        return self._proof

    def arm(self) -> None:
        """Check that the recording can be saved, warm the tracer up, and begin to count steps.

        Raises LifetimeError (wrong state, a foreign profiler) or OutputError (folder unwritable, disk full).
        """
        self._allow("arm")
        self._sink.preflight()
        with ExitStack() as stack:
            claim(self)
            stack.callback(yield_claim, self)
            self._owner = threading.get_ident()
            self._backend.warm_up()
            atexit.register(self._at_exit)
            stack.callback(atexit.unregister, self._at_exit)
            stack.callback(self._drop)
            self._state = State.ARMED
            self._sink.update(outcome=Outcome.RECORDING)
            self._advance()
            self._stack = stack.pop_all()

    def step(self) -> None:
        """The end of a step: the window opens and closes here and nowhere else. A no-op after release."""
        if self._state is State.RELEASED:
            return
        self._allow("step")
        self._steps_done += 1
        if self._stop_reason is not None:
            self._finish(self._stop_reason)
        elif self._state is State.RECORDING and self._steps_done >= self.plan.end_step:
            self._finish(None)
        else:
            try:
                self._advance()
            except (Dsv4profError, RuntimeError) as error:
                self.failure = (
                    error if isinstance(error, Dsv4profError) else LifetimeError(f"recording failed: {error}")
                )
                self._finish(str(error))

    def request_stop(self, reason: str) -> None:
        """Ask for the end of the window at the next step boundary. Only sets a flag: safe in signal handlers and
        threads.
        """
        self._stop_reason = reason

    def stop(self, *, reason: str | None = None) -> RankRecord:
        """End the window now, save it and release. `reason` says why it is shorter than planned: the trace is then
        marked incomplete. Raises LifetimeError when nothing is recording, or what went wrong while saving."""
        self._allow("stop")
        self._finish(reason)
        if self.failure is not None:
            raise self.failure
        return self.record

    def release(self) -> ReleaseProof:
        """Drop the profiler and prove that it is gone. Idempotent; an unfinished recording is given up."""
        if self._proof is None:
            self._allow("release")
            unsaved = self._state in (State.ARMED, State.RECORDING)
            self._stack.close()
            if unsaved:
                self._report({}, "released before it was saved")
        return self._drop()

    def abandon(self) -> None:
        """For the child of a fork: the recording stays the parent's. Nothing is saved, stopped or proved here."""
        atexit.unregister(self._at_exit)
        self._stack.pop_all()
        self._backend.abandon()
        self._state = State.RELEASED

    def __enter__(self) -> Recorder:
        if self._state is State.NEW:
            self.arm()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._state in (State.ARMED, State.RECORDING):
            self._finish(f"the block ended with {describe(error)}" if error is not None else self._stop_reason)
        if error is None and self.failure is not None:
            raise self.failure

    def _advance(self) -> None:
        """Open what the next step needs to have open."""
        if not self._prepared and self._steps_done >= (self.plan.wait or 0):
            self._backend.prepare()
            self._prepared = True
        if self._state is State.ARMED and self._steps_done >= self.plan.first_step:
            self._backend.start()
            self._state = State.RECORDING
            self._first_step = self._steps_done
            self._sink.update(
                first_step=self._first_step,
                clock=ClockAnchor(wall_ns=time.time_ns(), monotonic_ns=time.perf_counter_ns()),
            )
        if self._state is State.RECORDING and self.mark_steps:
            self._backend.mark(self._steps_done)

    def _finish(self, reason: str | None) -> None:
        """Stop, export and release, each whether or not the one before went well."""
        recorded = self._state is State.RECORDING
        self._state = State.EXPORTING
        changes: dict[str, Any] = {}
        try:
            if recorded:
                changes, lack = self._save()
                reason = reason or lack
            else:
                reason = reason or f"the window never opened: it begins after {self.plan.first_step} steps"
        except Dsv4profError as error:
            self.failure = error
            reason = error.message
        except (OSError, RuntimeError) as error:
            self.failure = OutputError(f"the recording could not be saved: {error}")
            self.failure.__cause__ = error
            reason = self.failure.message
        except BaseException as error:
            reason = f"{type(error).__name__} while saving"
            raise
        finally:
            self._stack.close()
            self._report(changes, reason)
            self._done.set()

    def _save(self) -> tuple[dict[str, Any], str | None]:
        """What to note of the saved trace, and what it lacks."""
        json_file = self._sink.json_path()
        began = time.perf_counter_ns()
        self._backend.stop()
        stopped = time.perf_counter_ns()
        try:
            require_folder(self._sink.folder)
            self._backend.export(json_file)
            if self.mark_steps and self._first_step < self._steps_done < self.plan.end_step:
                disown_unfinished(json_file, self._steps_done)
            work = self._sink.store_trace(json_file)
        finally:
            json_file.unlink(missing_ok=True)
        changes = {"stop_ns": stopped - began, "export_ns": time.perf_counter_ns() - stopped}
        return changes, None if work else _NO_WORK

    def _drop(self) -> ReleaseProof:
        if self._proof is None:
            self._proof = release_with_proof(self._backend.release)
            self._state = State.RELEASED
        return self._proof

    def _report(self, changes: dict[str, Any], reason: str | None) -> None:
        """The last word in the rank's record. A record that cannot be written is a failure like any other."""
        try:
            self._sink.update(
                outcome=Outcome.COMPLETE if reason is None else Outcome.INCOMPLETE,
                reason=reason,
                steps=max(0, self._steps_done - self._first_step) if self.record.first_step is not None else 0,
                release=self._proof,
                **changes,
            )
        except OutputError as error:
            self.failure = self.failure or error

    def _allow(self, move: str) -> None:
        sentence = _ILLEGAL.get((move, self._state))
        if sentence is not None:
            raise LifetimeError(sentence, hint=f"state: {self._state.value}")
        if self._owner is not None and threading.get_ident() != self._owner:
            raise LifetimeError(
                f"{move} was called on another thread than the one that armed the recorder",
                hint="recording is per thread; from elsewhere call request_stop(), obeyed at the next step",
            )

    def _at_exit(self) -> None:
        """The interpreter is about to go, which would crash while Kineto records."""
        reason = "the process exited while recording"
        if threading.get_ident() == self._owner:
            self._finish(reason)
            return
        self.request_stop(reason)
        if not self._done.wait(_EXIT_PATIENCE_S):
            self._report({}, f"{reason}, and the recording thread reached no step boundary in {_EXIT_PATIENCE_S:.0f} s")
