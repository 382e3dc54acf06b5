"""When a view server has done its work: the page has the whole trace and asks for nothing more, or nobody ever came."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Lifetime:
    """Told of every request, says when it is enough. Safe to use from several threads; times are seconds.

    `idle_s` counts from the last request on, once the trace was fetched; `limit_s` counts from the beginning.
    """

    def __init__(self, idle_s: float, limit_s: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.idle_s = idle_s
        self.limit_s = limit_s
        self.requests = 0
        self.fetched = 0
        self._clock = clock
        self._began = self._last = clock()
        self._active = 0
        self._lock = threading.Lock()

    @contextmanager
    def request(self) -> Iterator[None]:
        """Around each request that is answered."""
        with self._lock:
            self.requests += 1
            self._active += 1
        try:
            yield
        finally:
            with self._lock:
                self._active -= 1
                self._last = self._clock()

    def trace_fetched(self) -> None:
        """A client has the last byte of the trace."""
        with self._lock:
            self.fetched += 1

    def over(self) -> str | None:
        """Why it is over, or None. Never while a request is being answered, unless the limit has passed."""
        with self._lock:
            now = self._clock()
            if now - self._began >= self.limit_s:
                never = "" if self.fetched else ", the trace was never fetched"
                return f"its limit of {self.limit_s:g} s has passed{never}"
            if self.fetched and not self._active and now - self._last >= self.idle_s:
                return f"the page has the trace and asked for nothing in {self.idle_s:g} s"
        return None
