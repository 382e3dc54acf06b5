"""What ends a recording from outside its program's flow: the end of the process, and of the thread that is recorded."""

from __future__ import annotations

import atexit
import threading
from typing import Protocol

from dsv4prof.model.session import EndedBy
from dsv4prof.recorder.farewell import at_thread_end
from dsv4prof.recorder.process import exit_time_left
from dsv4prof.recorder.states import State

# The longest that a process's exit waits for a trace that is being saved, or for another thread to end its step.
EXIT_PATIENCE_S = 10.0


class Endable(Protocol):
    """A recorder, as far as its end goes."""

    @property
    def state(self) -> State: ...
    @property
    def owner(self) -> int | None: ...
    def end(self, ended_by: EndedBy, reason: str | None) -> None: ...
    def request_stop(self, reason: str | None, ended_by: EndedBy) -> None: ...
    def wait(self, timeout_s: float) -> bool: ...
    def note_unfinished(self, reason: str) -> None: ...


class ExitWatch:
    """Watches both from its making on the recorded thread until `cancel`."""

    def __init__(self, recorder: Endable) -> None:
        self._recorder = recorder
        self._forget_thread = at_thread_end(self._thread_ends)
        atexit.register(self._at_exit)

    def cancel(self) -> None:
        atexit.unregister(self._at_exit)
        self._forget_thread()

    def _thread_ends(self) -> None:
        """Nobody else can stop a profiler of this thread, and at the process's exit it would crash."""
        if self._records() and threading.get_ident() == self._recorder.owner:
            self._recorder.end(EndedBy.EXIT, "its thread ended while it recorded")

    def _at_exit(self) -> None:
        """The interpreter is about to go, which would crash while Kineto records."""
        reason = "the process exited while recording"
        if self._records():
            if threading.get_ident() == self._recorder.owner:
                self._recorder.end(EndedBy.EXIT, reason)
            else:
                self._recorder.request_stop(reason, EndedBy.EXIT)
        if not self._recorder.wait(exit_time_left(EXIT_PATIENCE_S)):
            late = "the recording thread reached no step boundary" if self._records() else "the trace was not saved yet"
            self._recorder.note_unfinished(f"{reason}, and {late} after {EXIT_PATIENCE_S:.0f} s")

    def _records(self) -> bool:
        return self._recorder.state in (State.ARMED, State.RECORDING)
