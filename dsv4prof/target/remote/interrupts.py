"""Ctrl-C, SIGTERM and SIGHUP while a server's profiler is armed: the first ends the waiting, no later one the stopping.

A KeyboardInterrupt may come between any two lines. So it is raised at most once; from then on, and wherever an ending
has begun, a signal is only counted, and what waits looks at the count.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

# A terminal that is closed and a command that is told to go must still stop the server's profiler.
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """How often this command was told to go. `held`: no longer raised, only counted."""

    def __init__(self) -> None:
        self.count = 0
        self.held = False

    def hold(self) -> None:
        self.held = True

    def take(self, _: int, __: FrameType | None) -> None:
        """The signal handler. Raises KeyboardInterrupt for the first one, unless held."""
        self.count += 1
        if not self.held:
            self.held = True
            raise KeyboardInterrupt


@contextmanager
def interruptible() -> Iterator[Interrupts]:
    """Take the signals for a while. One that is ignored (`nohup`, a background job) stays so."""
    interrupts = Interrupts()
    if threading.current_thread() is not threading.main_thread():
        yield interrupts
        return
    # None is a handler that was not set from Python, and could not be put back.
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    taken = {number: handler for number, handler in before.items() if handler not in (signal.SIG_IGN, None)}
    for number in taken:
        signal.signal(number, interrupts.take)
    try:
        yield interrupts
    finally:
        for number, handler in taken.items():
            signal.signal(number, handler)
