"""The last moment of a thread, on that thread: a profiler can be stopped there and nowhere else, ever after.

Python destroys a thread's local values when the thread ends, on the thread itself.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

_here = threading.local()


class Farewell:
    """Calls `then` when the thread ends that it was made on, unless it was cancelled."""

    def __init__(self, then: Callable[[], None]) -> None:
        self._then: Callable[[], None] | None = then

    def cancel(self) -> None:
        self._then = None

    def __del__(self) -> None:
        then, self._then = self._then, None
        if then is not None:
            then()


def farewell_of(then: Callable[[], None]) -> Farewell:
    """Have `then` called at the end of this thread; its only lasting reference is the thread's own."""
    farewells = [each for each in getattr(_here, "farewells", []) if each._then is not None]
    farewells.append(Farewell(then))
    _here.farewells = farewells
    return farewells[-1]
