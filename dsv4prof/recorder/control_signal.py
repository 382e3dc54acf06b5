"""A signal that starts a recording and ends it, without anything happening inside the signal's handler.

A handler runs between any two bytecodes of the main thread, also inside torch: a profiler that was started or stopped
there has killed processes. So the handler only sets a flag, and the manager obeys it at the next step's boundary.
"""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Protocol

from dsv4prof.errors import UsageError

# Handled in Python, a fault would happen again for ever; the others end the process or wake somebody else.
_NOT_FOR_CONTROL = frozenset({"SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGABRT", "SIGTERM", "SIGCHLD"})


class Toggled(Protocol):
    def request_toggle(self) -> None:
        """Start the default plan at the next step's boundary, or stop there what is recording. Sets a flag only."""
        ...


class SignalControl:
    """A signal handler that is in force until `close`. Made by `listen`."""

    def __init__(self, manager: Toggled, number: signal.Signals, previous: Any) -> None:
        self.number = number
        self._manager = manager
        self._previous = previous
        self._process = os.getpid()
        self._closed = False

    def close(self) -> None:
        """Put the former handler back, unless somebody has laid another one over ours. Idempotent.

        From then on the signal does what it did before; for SIGUSR2 the default ends the process.
        Raises UsageError on another thread than the main one.
        """
        if self._closed:
            return
        _require_main_thread("taken back")
        self._closed = True
        if signal.getsignal(self.number) == self._handle:
            signal.signal(self.number, self._previous)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        # A child of a fork inherits the handler and has nothing to record.
        if os.getpid() == self._process:
            self._manager.request_toggle()

    def __enter__(self) -> SignalControl:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def listen(
    manager: Toggled, number: int = getattr(signal, "SIGUSR2", signal.SIGINT), *, replace: bool = False
) -> SignalControl:
    """From now on `kill -USR2 PID` starts the manager's default plan, and stops what it finds recording.

    Raises UsageError on another thread than the main one, for a signal that cannot be handled, and when the program
    handles it already, unless `replace`; a handler that was installed by C code cannot be put back and is never
    replaced.
    """
    _require_main_thread("handled")
    try:
        chosen = signal.Signals(number)
    except ValueError:
        raise UsageError(f"there is no signal {number!r}", hint="signal.SIGUSR1 or signal.SIGUSR2") from None
    if chosen.name in _NOT_FOR_CONTROL:
        raise UsageError(f"{chosen.name} means something else to a process", hint="take SIGUSR1 or SIGUSR2")
    previous = signal.getsignal(chosen)
    if previous is None or (previous in (signal.SIG_DFL, signal.SIG_IGN) and _caught_by_c(chosen)):
        raise UsageError(f"{chosen.name} is handled by C code of this process already", hint="take another signal")
    if previous not in (signal.SIG_DFL, signal.SIG_IGN) and not replace:
        raise UsageError(
            f"this program handles {chosen.name} already", hint="take another signal, or replace=True to take it over"
        )
    control = SignalControl(manager, chosen, previous)
    try:
        signal.signal(chosen, control._handle)
    except (OSError, ValueError) as error:
        raise UsageError(f"{chosen.name} cannot be handled: {error}", hint="take SIGUSR1 or SIGUSR2") from error
    return control


def _caught_by_c(number: int) -> bool:
    """Whether this process catches a signal of which Python says that nobody does; only Linux can tell."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return False
    caught = next((line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:")), "0")
    return bool(int(caught, 16) >> (number - 1) & 1)


def _require_main_thread(what: str) -> None:
    if threading.current_thread() is not threading.main_thread():
        raise UsageError(
            f"a signal can be {what} on the main thread only", hint="call it there, before other threads start"
        )
