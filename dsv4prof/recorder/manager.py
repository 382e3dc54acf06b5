"""One owner and one state for a profiler, because torch's own can kill the process that uses it slightly wrong.

Stopping twice, stopping on another thread, two profilers at once and an exit while recording all end in a crash in
plain torch; a full disk ends in an empty file and no error; a dropped profiler is destroyed later by a random
collection. Here each move is allowed in one state, everything entered is left through one ExitStack, and release is
proved.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from types import TracebackType

from dsv4prof.errors import Dsv4profError, LifetimeError, UsageError
from dsv4prof.model.session import EndedBy, Outcome, RankRecord, ReleaseProof
from dsv4prof.recorder.backends import Backend
from dsv4prof.recorder.exits import ExitWatch
from dsv4prof.recorder.limits import Limits
from dsv4prof.recorder.outcome import judge
from dsv4prof.recorder.plan import RecordPlan
from dsv4prof.recorder.process import anybody_records, claim, only_saves, yield_claim
from dsv4prof.recorder.saving import WindowSaver
from dsv4prof.recorder.sink import RankSink
from dsv4prof.recorder.states import State, require_legal, require_owner
from dsv4prof.recorder.trigger import Action, Close, Open, Trigger
from dsv4prof.recorder.window import Window, as_lifetime_error
from dsv4prof.recorder.wording import describe, warn


class Recorder:
    """Carries one plan out on the thread that arms it: its windows, each with a profiler of its own.

    `with Recorder(plan, sink, make) as recorder:` arms, and leaving the block saves what was recorded, whatever
    happened. Steps are announced with `begin_step(stage)` and `end_step()`, or by `step()` alone, which ends a step and
    begins the next. A window that closes is saved by a thread beside the program and released at the first boundary
    after that where nothing records; `wait` waits for both. `request_stop` may be called from any thread or signal
    handler. Errors while starting or saving never reach a step, which belongs to the profiled program: they are in
    `failure`, in the record, and raised by `stop()` or at the end of the block. `mark_steps` names each recorded step
    in the trace, for programs that do not do so themselves; a block without any step is one step. `on_done` is called
    once, on whichever thread concludes. In the child of a fork the recorder counts as released and leaves everything to
    the parent.
    """

    def __init__(
        self,
        plan: RecordPlan,
        sink: RankSink,
        make: Callable[[], Backend],
        *,
        mark_steps: bool = False,
        on_done: Callable[[], None] = lambda: None,
    ) -> None:
        self.plan = plan
        self.mark_steps = mark_steps
        self.failure: Dsv4profError | None = None
        self._sink = sink
        self._make = make
        self._on_done = on_done
        self._trigger = Trigger(plan)
        self._limits = Limits(plan, sink.folder)
        self._saver = WindowSaver(on_release=self._conclude)
        self._open: Window | None = None
        self._ready: Window | None = None
        self._armed = False
        self._ended = False
        # A step that was begun for a program which only announces ends.
        self._implied = False
        self._owner: int | None = None
        self._stack = ExitStack()
        self._watch: ExitWatch | None = None
        self._stop_asked: tuple[EndedBy, str | None] | None = None
        self._cuts: list[str] = []
        self._done = threading.Event()

    @property
    def state(self) -> State:
        if not self._armed:
            return State.RELEASED if self._done.is_set() else State.NEW
        if self._done.is_set():
            return State.RELEASED
        if self._open is not None:
            return State.RECORDING
        return State.EXPORTING if self._ended else State.ARMED

    @property
    def steps_done(self) -> int:
        """Steps since arming, recorded or not."""
        return self._trigger.steps_done

    @property
    def owner(self) -> int | None:
        """The thread that armed it, as `threading.get_ident()` has it."""
        return self._owner

    @property
    def window(self) -> str | None:
        """The name of the window that records now."""
        return self._open.name if self._open is not None else None

    @property
    def window_steps(self) -> int:
        """Steps of the window that records now."""
        return self._trigger.window_steps if self._open is not None else 0

    @property
    def profilers_alive(self) -> int:
        """Profilers that have not been released yet."""
        return self._saver.alive

    @property
    def record(self) -> RankRecord:
        return self._sink.record

    @property
    def proof(self) -> ReleaseProof | None:
        """How the release went: the first that failed or else the last; None before any."""
        return self._saver.proof

    def arm(self, *, begin: bool = True) -> None:
        """Check that the recording can be saved, warm the tracer up, and begin to count steps.

        The first step begins now, unless `begin` is False or the plan is by stage: then with `begin_step`.
        Raises LifetimeError (wrong state, a foreign profiler) or OutputError (folder unwritable, disk full).
        """
        self._allow("arm")
        self._sink.preflight(self.plan.window_names())
        with ExitStack() as stack:
            claim(self)
            stack.callback(yield_claim, self)
            self._owner = threading.get_ident()
            self._make().warm_up()
            self._watch = ExitWatch(self)
            stack.callback(self._watch.cancel)
            self._armed = True
            stack.callback(self._disarm)
            self._sink.update(outcome=Outcome.RECORDING)
            if begin and not self.plan.stages:
                self._implied = True
                self._carry_out(self._trigger.begin())
            self._stack = stack.pop_all()

    def skip(self) -> None:
        """Record nothing: the plan leaves this rank out. Every later move is then a no-op."""
        self._allow("arm")
        self._sink.update(outcome=Outcome.SKIPPED, reason="the plan records other ranks")
        self._done.set()

    def begin_step(self, stage: object = None) -> None:
        """A step begins, and the one before has ended. `stage` is a Phase, its name or a server's forward mode."""
        if self.state is State.RELEASED:
            return
        implied, self._implied = self._implied, False
        self._boundary(stage, end=not implied, begin=not implied)

    def end_step(self) -> None:
        """The step is over; nothing may follow for a while."""
        if self.state is not State.RELEASED:
            self._implied = False
            self._boundary(None, end=True, begin=False)

    def step(self) -> None:
        """The end of a step and the beginning of the next: windows open and close here. A no-op after release.

        Raises UsageError for a plan by stage, which has to be told the stage that begins.
        """
        if self.plan.stages:
            raise UsageError(
                "this recording is by stage, and step() does not say which stage begins",
                hint="call begin_step(stage) at the beginning of each step",
            )
        if self.state is not State.RELEASED:
            self._implied = True
            self._boundary(None, end=True, begin=True)

    def poll(self) -> None:
        """A moment between two steps without a step: for idle loops, so that a stop or a release need not wait."""
        if self.state is not State.RELEASED:
            self._boundary(None, end=False, begin=False)

    def request_stop(self, reason: str | None, ended_by: EndedBy = EndedBy.STOP) -> None:
        """Ask for the end of the recording at the next boundary; `reason` says why it is shorter than planned. Only
        sets a flag: safe in signal handlers and threads.
        """
        self._stop_asked = ended_by, reason

    def end(self, ended_by: EndedBy = EndedBy.STOP, reason: str | None = None) -> None:
        """End the recording now and let it be saved beside the program; `wait` waits for that. Raises LifetimeError
        when nothing is recording.
        """
        self._allow("stop")
        self._end(ended_by, reason)
        self._settle()

    def stop(self, *, reason: str | None = None) -> RankRecord:
        """End the recording now, save it and release. `reason` says why it is shorter than planned: the trace is then
        marked incomplete. Raises LifetimeError when nothing is recording, or what went wrong while saving."""
        self.end(EndedBy.STOP, reason)
        self.wait()
        if self.failure is not None:
            raise self.failure
        return self.record

    def wait(self, timeout_s: float | None = None) -> bool:
        """Until everything that was recorded is saved and released; False when that takes longer.

        On the recorder's own thread it also ends what is open.
        """
        if self._armed and threading.get_ident() == self._owner and not self._done.is_set():
            self._end(EndedBy.STOP, None)
            if not self._saver.wait_saved(timeout_s):
                return False
            self._saver.release_saved("at the end of the recording")
        return self._done.wait(timeout_s) if self._armed else self._done.is_set()

    def note_unfinished(self, reason: str) -> None:
        """The process ends before this recording did."""
        self._sink.update(outcome=Outcome.INCOMPLETE, reason=reason)

    def release(self) -> ReleaseProof | None:
        """Drop the profilers and prove that they are gone. Idempotent; an unfinished recording is given up.

        None when there never was one.
        """
        if not self._armed:
            self._done.set()
        elif not self._done.is_set():
            self._allow("release")
            if self.state in (State.ARMED, State.RECORDING):
                self._end(EndedBy.STOP, "released before it was saved", discard=True)
            self.wait()
        return self.proof

    def abandon(self) -> None:
        """For the child of a fork: the recording stays the parent's. Nothing is saved, stopped or proved here."""
        if self._watch is not None:
            self._watch.cancel()
        self._stack.pop_all()
        self._saver.abandon()
        self._open = None
        self._done.set()

    def __enter__(self) -> Recorder:
        if self.state is State.NEW:
            self.arm()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self.state in (State.ARMED, State.RECORDING) and threading.get_ident() != self._owner:
            # A generator that another thread closes, say: only the recorded thread can stop its profiler.
            self.request_stop("the block was left on another thread than the one that entered it", EndedBy.ERROR)
            self.failure = self.failure or LifetimeError(
                "the block was left on another thread than the one that it records",
                hint="the recording ends when that thread does; enter and leave the block on one thread",
            )
            if error is None:
                raise self.failure
            warn(self.failure.message)
            return
        if self.state in (State.ARMED, State.RECORDING):
            ended_by, reason = self._stop_asked or (EndedBy.BLOCK_END, None)
            try:
                self._end(ended_by, f"the block ended with {describe(error)}" if error is not None else reason)
            finally:
                self.wait()
        self.wait()
        if error is None and self.failure is not None:
            raise self.failure

    def _boundary(self, stage: object, *, end: bool, begin: bool) -> None:
        """Everything that happens between two steps. What goes wrong in here ends the recording, not the program."""
        self._allow("step")
        try:
            if end:
                self._carry_out(self._trigger.end())
            self._obey_limits()
            if self._stop_asked is not None:
                self._end(*self._stop_asked)
            if begin:
                # Also after the end of the plan, so that steps go on being counted.
                self._carry_out(self._trigger.begin(stage))
            self._settle()
        except Exception as error:  # noqa: BLE001 - the seam to a program that must not end by its profiler's fault
            self._give_up(error)

    def _obey_limits(self) -> None:
        """A window over its budget ends; later ones of the plan may still open."""
        hit = self._limits.exceeded(self._open) if self._open is not None else None
        if hit is None:
            return
        if self.plan.active is not None:
            self._cuts.append(hit.reason)
        self._close(self._trigger.close(hit.ended_by), hit.reason)
        if self._trigger.finished:
            self._over()

    def _give_up(self, error: Exception) -> None:
        """The recording ends here; what was saved before stays."""
        window = self._open or self._ready
        if window is not None:
            window.fail(error, "carried on")
            window.saved.set()
        self.failure = self.failure or as_lifetime_error(error)
        if self._trigger.window is not None:
            self._trigger.close(EndedBy.ERROR)
        self._trigger.give_up()
        self._open = self._ready = None
        self._over()

    def _carry_out(self, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, Close):
                self._close(action)
                continue
            self._ready = window = self._ready or self._new_window(action.window)
            window.prepare()
            if isinstance(action, Open):
                window.open(self._trigger.steps_done)
                self._limits.open()
                self._open, self._ready = window, None
        if self._open is not None and self.mark_steps:
            self._open.mark(self._trigger.steps_done if self._trigger.counting else None)
        if self._trigger.finished:
            self._over()

    def _new_window(self, name: str) -> Window:
        window = Window(self._make(), self._sink.window(name), keep=self.plan.release == "keep")
        self._saver.windows.append(window)
        return window

    def _close(self, closed: Close, reason: str | None = None, *, save: bool = True) -> None:
        """Stop the open window here; saving it is another thread's work."""
        window, self._open = self._open, None
        assert window is not None, "the trigger closes what it opened"
        # A name that was opened for a step that did not end would count as a step.
        unfinished = self._trigger.steps_done if self.mark_steps and closed.steps and self._trigger.in_step else None
        try:
            window.close(closed.ended_by, closed.steps, reason=reason, unfinished=unfinished)
        finally:
            # A signal that waited for the stop is raised at its end.
            if save:
                self._saver.save(window)
            else:
                window.saved.set()

    def _end(self, ended_by: EndedBy, reason: str | None, *, discard: bool = False) -> None:
        """Nothing is recorded from now on; what is open is closed and saved, unless it is to be discarded."""
        if self._ended and self._open is None:
            return
        if reason is not None:
            self._cuts.append(reason)
        try:
            if self._open is not None:
                self._close(self._trigger.close(ended_by), reason, save=not discard)
        finally:
            if not self._trigger.finished:
                self._cuts.append(self._trigger.unopened())
            self._trigger.give_up()
            if self._ready is not None:
                self._ready.saved.set()
                self._ready = None
            self._over()

    def _over(self) -> None:
        """Nothing more will be recorded: whoever is next may begin."""
        self._ended = True
        only_saves(self)

    def _settle(self) -> None:
        """Release what is saved, while nothing records that a pause could spoil."""
        if (self._ended or self._saver.has_saved) and not anybody_records():
            self._saver.release_saved("between two steps")

    def _conclude(self) -> None:
        """After the last release of an ended plan: say how it all ended, once."""
        if self._done.is_set() or not self._ended or self._saver.alive:
            return
        self.failure = self.failure or self._saver.failure
        outcome, reason = judge(self.record, self._saver.windows, self._cuts, self.failure)
        try:
            self._sink.update(outcome=outcome, reason=reason)
        except Dsv4profError as error:
            self.failure = self.failure or error
        self._stack.close()
        self._done.set()
        self._on_done()

    def _disarm(self) -> None:
        """Nothing of a profiler may stay, also where arming failed half-way."""
        for window in self._saver.windows:
            window.release("while arming failed")
        self._done.set()

    def _allow(self, move: str) -> None:
        require_legal(move, self.state)
        require_owner(move, self._owner)
