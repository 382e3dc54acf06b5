"""A profiler in the warm-up steps of its schedule shows in no flag of torch, and crashes at its start if ours recorded
in between.

To look for it among the objects of a server stops the server: 40 to 280 ms with 2 million objects. So the heap is
searched once in a process, outside any window, and from then on every profiler passes by a watch when it is prepared.
"""

from __future__ import annotations

import functools
import gc
import os
import threading
import weakref
from collections.abc import Iterator
from typing import Any


def any_prepared(torch: Any) -> bool:
    """Whether a profiler of this process is prepared and has not started. The first call searches the heap, where one
    made before `gc.freeze()` is not seen; later ones take microseconds.
    """
    with living_profilers_lock():
        return _watch.sees_one() or (_watch.settle(torch.autograd.profiler.profile) and _watch.sees_one())


def living_profilers_lock() -> threading.RLock:
    """Held while living profilers are looked at, and by whoever drops one: the look holds what it sees, and a profiler
    that is dropped meanwhile would be destroyed later, elsewhere.
    """
    if _look.pid != os.getpid():
        # Another thread may have held it in the moment of a fork; it does not exist here and will not let go.
        _look.pid, _look.lock = os.getpid(), threading.RLock()
    return _look.lock


class _Look:
    """The lock of this process."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.lock = threading.RLock()


class _Watch:
    """Notes each profiler that is prepared, with the time of its last start until then, which its start changes."""

    def __init__(self) -> None:
        self._seen: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._wrapper: object = None

    def sees_one(self) -> bool:
        return any(_started(profiler) == before for profiler, before in self._seen.items())

    def settle(self, kind: Any) -> bool:
        """Watch `kind` and search for what was prepared before; False when the watch was there already.

        It comes back when somebody put torch's own method in its place, and stays for the life of the process.
        """
        original = getattr(kind, "_prepare_trace", None)
        if original is not None:
            if original is self._wrapper:
                return False
            self._wrapper = kind._prepare_trace = self._around(original)
        for profiler in _living(kind):
            if getattr(profiler, "entered", False) and _started(profiler) == 0:
                self._seen[profiler] = 0
        return True

    def _around(self, original: Any) -> Any:
        @functools.wraps(original)
        def prepare_trace(profiler: Any, *args: Any, **kwargs: Any) -> Any:
            before = _started(profiler)
            if before is not None:
                with living_profilers_lock():
                    self._seen[profiler] = before
            return original(profiler, *args, **kwargs)

        return prepare_trace


_look = _Look()
_watch = _Watch()


def _started(profiler: Any) -> int | None:
    """When it started last, 0 for never; None where torch does not say."""
    return getattr(profiler, "profiling_start_time_ns", None)


def _living(kind: type) -> Iterator[Any]:
    """Each object refers to its class, so that nobody has to ask every object of a server for its type (2 million
    objects: 40 ms in place of 280).
    """
    kinds = [kind]
    for each in kinds:
        kinds += each.__subclasses__()
    return (each for each in gc.get_referrers(*kinds) if issubclass(type(each), kind))
