"""SIGTERM's default end loses the trace: while something is recorded it becomes an ordinary end.

Somebody else's handler is left alone.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def by_exception() -> Iterator[None]:
    """For a block that is recorded on the main thread: SIGTERM leaves it with SystemExit."""
    mine = threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if not mine:
        yield
        return

    def leave(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


class Termination:
    """For a program whose working thread may be any: SIGTERM first calls `save`, and then ends the process as ever.

    When the main thread itself works, `save` returns False, and the end is a SystemExit in the middle of its step.
    Nothing is installed off the main thread, or over another handler.
    """

    def __init__(self, save: Callable[[], bool]) -> None:
        self._save = save
        self._mine = threading.current_thread() is threading.main_thread() and (
            signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        )
        if self._mine:
            signal.signal(signal.SIGTERM, self._leave)

    def close(self) -> None:
        """Leave SIGTERM as it was found. Off the main thread nothing can be done, and the handler stays harmless."""
        if self._mine and threading.current_thread() is threading.main_thread():
            # A bound method is a new object each time it is asked for: compared by value.
            if signal.getsignal(signal.SIGTERM) == self._leave:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
            self._mine = False

    def _leave(self, number: int, frame: FrameType | None) -> None:
        if not self._save():
            raise SystemExit(128 + number)
        # Another thread works, and may never end by itself: the process goes as it would have gone without us.
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
