"""A profiler for programs that run for days: started and stopped from outside, any number of times.

Whoever asks is on another thread than the work (an HTTP handler, a signal), and a profiler started there would record
nothing of it. So a request is only noted, and carried out by the working thread between two of its steps.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from functools import partial
from pathlib import Path
from types import TracebackType

from dsv4prof.errors import Dsv4profError, LifetimeError, OutputError, UsageError
from dsv4prof.model.session import MANIFEST_NAME, EndedBy, Outcome, RankCoordinates
from dsv4prof.recorder.agreement import forget_launch
from dsv4prof.recorder.backends.compose import make_backend
from dsv4prof.recorder.backends.loading import preload_profiler
from dsv4prof.recorder.coordinates import coordinates_from, trace_metadata
from dsv4prof.recorder.exits import EXIT_PATIENCE_S
from dsv4prof.recorder.manager import Recorder
from dsv4prof.recorder.plan import RecordPlan
from dsv4prof.recorder.process import exit_time_left
from dsv4prof.recorder.sessions import DEFAULT_ROOT, assemble
from dsv4prof.recorder.starting import Starter, beside, counted_from
from dsv4prof.recorder.states import State
from dsv4prof.recorder.status import (
    ControlledSession,
    ManagerStatus,
    SessionResult,
    state_of,
    status_of,
    why_nothing_records,
)
from dsv4prof.recorder.termination import Termination
from dsv4prof.recorder.wording import describe, warn


class ProfilerManager:
    """Holds a place for a profiler in a program's loop. It costs a test of one attribute a step while nothing is asked.

    The loop calls `begin_step(stage)` (and `end_step()` where it may then be idle for long), or `step()` between two
    steps where it knows no stages, and `poll()` while it is idle; the thread that does so is the working thread, and
    none of these raises because of the profiler. `start` and `stop` may be called on any thread. Each start records one
    session; the next one may start while the last is still being saved. As a context manager, or with `close`, it ends
    what still records. Made on the main thread, it also turns a SIGTERM that nobody handles into an end that saves the
    trace.
    """

    def __init__(
        self,
        *,
        name: str = "server",
        root: Path | str = DEFAULT_ROOT,
        plan: RecordPlan | None = None,
        coordinates: RankCoordinates | None = None,
        working_thread: int | None = None,
    ) -> None:
        """`plan` is what `start()` and a signal record by default: by itself it is open-ended. `coordinates` are read
        from RANK and WORLD_SIZE unless given. `working_thread` is its `threading.get_ident()`, for a program that
        starts before its first step.
        """
        self.plan = plan or RecordPlan(active=None)
        self._coordinates = coordinates or coordinates_from(os.environ)
        self._starter = Starter(self._coordinates, Path(root).absolute(), name)
        self._thread = working_thread
        self._lock = threading.RLock()
        self._session: ControlledSession | None = None
        self._saving: list[ControlledSession] = []
        self._last: SessionResult | None = None
        self._last_number = 0
        self._total_steps = 0
        self._attention = False
        self._toggle = False
        self._announces = False
        self._strangers = False
        self._termination = Termination(self._save_for_termination, patience_s=EXIT_PATIENCE_S)
        atexit.register(self._at_exit)

    def warm_up(self) -> None:
        """Import what torch needs for its first profiler, which takes over a second; on any thread. A `start` from
        another thread than the working one does so itself.
        """
        preload_profiler()

    def start(
        self,
        plan: RecordPlan | None = None,
        *,
        root: Path | str | None = None,
        name: str | None = None,
        session: Path | str | None = None,
    ) -> ManagerStatus:
        """Record `plan` from the working thread's next step on; at once on that thread if it announces no beginnings.

        A new session is made under `root`, or the folder `session` is joined by all ranks that name it.
        Raises LifetimeError while another recording is under way, UsageError or OutputError for what cannot be.
        """
        made = self._request(plan or self.plan, root, name, session)
        if not made.ready:
            return self.status()
        if threading.get_ident() == self._thread and not self._announces and not made.plan.stages:
            try:
                self._arm(made, begin=True)
            except Dsv4profError as error:
                self._cancel(made, error.message, outcome=Outcome.FAILED)
                raise
        return self.status()

    def stop(self, *, wait_s: float = 30.0) -> SessionResult:
        """End the recording, and wait for its trace to be saved.

        The result's outcome is "recording" when that takes longer; where the working thread has reached no step
        boundary yet, it will stop at the next one. Raises LifetimeError when nothing is recording, also for the second
        of two stops.
        """
        with self._lock:
            session = self._session
            if session is None or not self._starter.here:
                raise LifetimeError(why_nothing_records(self._saving, self._last, here=self._starter.here))
            if session.stop_asked:
                raise LifetimeError("not recording any more: another stop is under way")
            session.stop_asked = True
            if session.recorder is None:
                self._cancel(session, "it was stopped before a step began")
                return session.result()
            session.recorder.request_stop(None)
        if threading.get_ident() == session.thread:
            self._at_boundary("poll")
            session.recorder.wait(wait_s)
        session.concluded.wait(wait_s)
        return session.result()

    def status(self) -> ManagerStatus:
        """What is going on; on any thread, never waiting for the working one."""
        with self._lock:
            return status_of(
                self._session if self._starter.here else None,
                self._saving if self._starter.here else [],
                total_steps=self._total_steps,
                last=self._last,
            )

    def request_toggle(self) -> None:
        """Start the default plan, or stop what records, at the next step. Only sets flags: for signal handlers."""
        self._toggle = True
        self._attention = True

    def begin_step(self, stage: object = None) -> None:
        """A step begins on the working thread. `stage` is a Phase, its name or a server's forward mode."""
        self._announces = True
        if self._attention:
            self._at_boundary("begin_step", stage)
        self._total_steps += 1

    def end_step(self) -> None:
        """The step is over."""
        if self._attention:
            self._at_boundary("end_step")

    def step(self) -> None:
        """One step has ended and the next begins, of no known stage."""
        self._total_steps += 1
        if self._attention:
            self._at_boundary("step")

    def poll(self) -> None:
        """A moment between two steps of an idle loop: what was asked for is done without a step."""
        if self._attention:
            self._at_boundary("poll")

    def wait(self, timeout_s: float | None = None) -> bool:
        """Until nothing records and everything is saved and released; False when that takes longer.

        On the working thread nothing can record meanwhile, so only what is being saved is waited for.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        here = threading.get_ident()
        with self._lock:
            session = self._session
            waits_for = [*self._saving, *([session] if session is not None and session.thread != here else [])]
        for each in waits_for:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            if each.recorder is not None and each.thread == here:
                each.recorder.wait(left)
            elif not each.concluded.wait(left):
                return False
        return all(each.concluded.is_set() for each in waits_for)

    def close(self) -> None:
        """End what records, save it, and let go of signals and exit hooks. Bounded; idempotent."""
        self._close(None)

    def __enter__(self) -> ProfilerManager:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._close(f"the block ended with {describe(error)}" if error is not None else None)

    def _close(self, reason: str | None) -> None:
        atexit.unregister(self._at_exit)
        never = reason or "the manager was closed before a step began"
        with self._lock:
            planned = self._session is not None and self._session.plan.active is not None
        if reason is None and planned:
            reason = "the manager was closed before all steps were made"
        self._finish(EndedBy.BLOCK_END, reason, never_began=never)
        self._termination.close()

    def _at_boundary(self, kind: str, stage: object = None) -> None:
        """`kind` is the recorder's move. Whatever goes wrong is the recording's failure and never the program's."""
        if self._is_stranger():
            return
        try:
            if self._toggle:
                self._toggle = False
                self._toggled()
            for saving in list(self._saving):
                if saving.recorder is not None and saving.thread == threading.get_ident():
                    saving.recorder.poll()
            session = self._session
            if session is not None:
                self._move(session, kind, stage)
            elif not self._saving:
                self._attention = self._toggle
        except Exception as error:  # noqa: BLE001 - the seam to a server that must not end by its profiler's fault
            self._failed(error)

    def _move(self, session: ControlledSession, kind: str, stage: object) -> None:
        """One boundary of the session that records, or is about to."""
        recorder = session.recorder
        if recorder is None and session.ready and kind in ("begin_step", "step"):
            recorder = self._arm(session, begin=kind == "step")
            if recorder is not None and kind == "begin_step":
                recorder.begin_step(stage)
        elif recorder is not None:
            getattr(recorder, kind)(*([stage] if kind == "begin_step" else []))
        if recorder is not None and recorder.state is State.EXPORTING:
            with self._lock:
                if self._session is session:
                    self._session, self._last, self._last_number = None, session.result(), session.number
                    self._saving.append(session)

    def _is_stranger(self) -> bool:
        """Steps of a second thread are not recorded, and a forked child records nothing of its parent's."""
        if not self._starter.here:
            return True
        here = threading.get_ident()
        session = self._session
        if session is None or session.recorder is None:
            self._thread = here
            return False
        if here != session.thread and not self._strangers:
            self._strangers = True
            warn("one thread's steps are recorded; those of another thread are ignored")
        return here != session.thread

    def _toggled(self) -> None:
        session = self._session
        if session is None:
            # Ranks agree on a folder, which may take a while; the loop does not wait for that.
            alone = (self._coordinates.world_size or 1) == 1
            self._start_quietly() if alone else beside(self._start_quietly)
            return
        with self._lock:
            session.stop_asked = True
            if session.recorder is None:
                self._cancel(session, "it was stopped before a step began")
            else:
                session.recorder.request_stop(None)

    def _start_quietly(self) -> None:
        """For a signal, which has nobody to answer to."""
        try:
            self._request(self.plan, in_loop=True)
        except Dsv4profError as error:
            warn(error.message)

    def _request(
        self,
        plan: RecordPlan,
        root: Path | str | None = None,
        name: str | None = None,
        session: Path | str | None = None,
        *,
        in_loop: bool = False,
    ) -> ControlledSession:
        if self._session is not None and self._starter.here:
            raise LifetimeError(
                f"a recording is already {state_of(self._session)}", hint="stop it, or wait for its end; status tells"
            )
        made = self._starter.make(plan, root, name, session)
        with self._lock:
            self._session, self._attention = made, True
        if threading.get_ident() != self._thread or in_loop:
            self._starter.get_ready(made, wait=not in_loop)
        else:
            made.ready = True
        return made

    def _arm(self, session: ControlledSession, *, begin: bool) -> Recorder | None:
        """A recorder for a session that nobody has ended meanwhile."""
        plan = counted_from(session.plan, self._total_steps)
        if begin and plan.stages:
            raise UsageError("this recording is by stage, and step() does not say which stage begins")
        make = partial(make_backend, plan, metadata=trace_metadata(self._coordinates, session.folder))
        done = partial(self._conclude, session)
        recorder = Recorder(plan, session.sink, make, mark_steps=True, on_done=done)
        with self._lock:
            if self._session is not session or session.stop_asked:
                return None
            session.recorder, session.thread = recorder, threading.get_ident()
        try:
            if not (session.folder / MANIFEST_NAME).is_file():
                raise OutputError(f"the session's folder is gone: {session.folder}")
            if plan.records(self._coordinates):
                recorder.arm(begin=begin)
            else:
                recorder.skip()
                self._conclude(session)
        except BaseException:
            session.recorder = None
            raise
        return recorder

    def _conclude(self, session: ControlledSession) -> None:
        """The recording is over, on whichever thread that is noticed."""
        try:
            forget_launch(session.folder, assemble(session.folder))
        except (Dsv4profError, OSError) as error:
            warn(f"the manifest of {session.folder} could not be written: {error}")
        with self._lock:
            if session.number >= self._last_number:
                self._last, self._last_number = session.result(), session.number
            self._saving = [each for each in self._saving if each is not session]
            if self._session is session:
                self._session = None
            # A signal may come between two of these lines: its flag is looked at last.
            self._attention = self._session is not None or bool(self._saving)
            if self._toggle:
                self._attention = True
        session.concluded.set()

    def _failed(self, error: Exception) -> None:
        """Where a file can still say so, it says why there is no trace."""
        reason = f"the recording failed: {error or type(error).__name__}"
        warn(reason)
        session = self._session
        if session is not None and session.recorder is None:
            self._cancel(session, reason, outcome=Outcome.FAILED)

    def _cancel(self, session: ControlledSession, reason: str, *, outcome: Outcome = Outcome.INCOMPLETE) -> None:
        try:
            session.sink.update(outcome=outcome, reason=reason)
        except Dsv4profError as error:
            warn(error.message)
        self._conclude(session)

    def _finish(self, ended_by: EndedBy, reason: str | None, *, never_began: str) -> None:
        """End everything, on any thread, in bounded time."""
        if not self._starter.here:
            return
        patience_s = exit_time_left(EXIT_PATIENCE_S) if ended_by is EndedBy.EXIT else EXIT_PATIENCE_S
        deadline = time.monotonic() + patience_s
        self._starter.settle(patience_s)
        with self._lock:
            session = self._session
            all_sessions = [*self._saving, *([session] if session is not None else [])]
            if session is not None:
                session.stop_asked = True
                if session.recorder is not None:
                    session.recorder.request_stop(reason, ended_by)
                else:
                    self._cancel(session, never_began)
        if session is not None and threading.get_ident() == session.thread:
            self._at_boundary("poll")
        for each in all_sessions:
            left = max(0.0, deadline - time.monotonic())
            if each.recorder is not None and threading.get_ident() == each.thread:
                each.recorder.wait(left)
            else:
                each.concluded.wait(left)

    def _save_for_termination(self) -> None:
        """For SIGTERM, where another thread than the main one works."""
        self._finish(EndedBy.EXIT, "the process was terminated", never_began="terminated before a step began")

    def _at_exit(self) -> None:
        if not self._starter.here:
            return
        if self._toggle and self._session is None:
            self._toggle = False
            self._start_quietly()
        never = "the process ended before a step began"
        self._finish(EndedBy.EXIT, "the process exited while recording", never_began=never)
