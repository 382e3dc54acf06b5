"""The last moment of a thread, on that thread: a profiler can be stopped there and nowhere else, ever after.

Python destroys a thread's local values when the thread ends, on the thread itself.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

_here = threading.local()


class _Sentinel:
    """Held by nobody but its thread, so that it goes with it. `calls` is shared with whoever may take them back."""

    def __init__(self, calls: list[Callable[[], None]]) -> None:
        self.calls = calls

    def __del__(self) -> None:
        while self.calls:
            self.calls.pop()()


def at_thread_end(then: Callable[[], None]) -> Callable[[], None]:
    """Have `then` called at the end of this thread, on it; returns what takes that back."""
    calls = [then]
    living = [sentinel for sentinel in getattr(_here, "sentinels", []) if sentinel.calls]
    _here.sentinels = [*living, _Sentinel(calls)]
    return calls.clear
