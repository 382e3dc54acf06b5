"""SIGTERM's default end loses the trace: while something is recorded it becomes an ordinary end.

Somebody else's handler is left alone. A signal that arrives while torch stops a profiler waits until it has stopped:
the results are stored after the C++ call, and an exception in between loses them.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from dsv4prof.recorder.process import recorders_of

_DEFERRED = (signal.SIGINT, signal.SIGTERM)
# By process: managers come and go, and the first that is closed must not take the handler from the others.
_savers: list[Callable[[], None]] = []


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


@contextmanager
def deferred_signals() -> Iterator[None]:
    """On the main thread, SIGINT and SIGTERM that arrive in the block come after it. Elsewhere nothing is done."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    arrived: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        arrived.append(number)

    # A handler that was not set from Python cannot be put back, and is left alone.
    before = {number: signal.getsignal(number) for number in _DEFERRED}
    ours = [number for number, handler in before.items() if callable(handler) or handler is signal.SIG_DFL]
    for number in ours:
        signal.signal(number, note)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, before[number])
        for late in arrived:
            signal.raise_signal(late)


class Termination:
    """For a program whose working thread may be any: SIGTERM has `save` called, and then ends the process as ever.

    Where the main thread itself records, the end is a SystemExit in the middle of its step. `save` runs on a thread of
    its own for at most `patience_s`: what the signal interrupted may hold the locks that it needs. Nothing is installed
    off the main thread, or over another handler.
    """

    def __init__(self, save: Callable[[], None], *, patience_s: float) -> None:
        self._save = save
        self._patience_s = patience_s
        self._mine = threading.current_thread() is threading.main_thread() and (
            signal.getsignal(signal.SIGTERM) in (signal.SIG_DFL, _leave)
        )
        if self._mine:
            _savers.append(self._bounded)
            signal.signal(signal.SIGTERM, _leave)

    def close(self) -> None:
        """Leave SIGTERM as it was found. Off the main thread it cannot be put back, and stays harmless."""
        if not self._mine:
            return
        self._mine = False
        _savers.remove(self._bounded)
        here = threading.current_thread() is threading.main_thread()
        if here and not _savers and signal.getsignal(signal.SIGTERM) is _leave:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def _bounded(self) -> None:
        thread = threading.Thread(target=self._save, name="dsv4prof-terminate", daemon=True)
        thread.start()
        thread.join(self._patience_s)


def _leave(number: int, frame: FrameType | None) -> None:
    if recorders_of(threading.get_ident()):
        raise SystemExit(128 + number)
    for save in list(_savers):
        save()
    # Another thread works, and may never end by itself: the process goes as it would have gone without us.
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
