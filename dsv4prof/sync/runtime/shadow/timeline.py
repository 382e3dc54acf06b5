"""What a device without hardware has done so far: streams are counters, an event is a place on one.

Work is done at once, yet a program must not see it: what the host has not waited for counts as pending, up to a lag, as
on a device that is behind. So `query` answers as it would there, and loops over it end.
"""

from __future__ import annotations

import threading

import msgspec

# A device may be this many launches behind the host; so many queries of one event are enough for it to be done.
_LAG, _PATIENCE = 1000, 50


class _Stream(msgspec.Struct):
    launched: int = 0
    done: int = 0


class Mark(msgspec.Struct):
    """An event: a place on a stream. `queries` counts answers that were "not yet"."""

    stream: int = 0
    place: int = -1
    queries: int = 0


class Timeline:
    """Stream 0 is the default one; it may always hold work of others. `occupied`: a long kernel is queued on it."""

    def __init__(self) -> None:
        self._streams: dict[int, _Stream] = {0: _Stream()}
        self._lock = threading.Lock()
        self.occupied = False

    def occupy(self) -> None:
        """A kernel of unknown length is queued on the default stream."""
        self.launch(0)
        self.occupied = True

    def launch(self, stream: int) -> None:
        with self._lock:
            self._of(stream).launched += 1

    def is_idle(self, stream: int) -> bool:
        """Whether the host surely need not wait for a stream: it has waited for all that it queued there."""
        own = self._of(stream)
        return stream != 0 and own.done >= own.launched

    def wait_stream(self, stream: int) -> None:
        """The host waits for all that is queued there."""
        own = self._of(stream)
        own.done = own.launched
        if stream == 0:
            self.occupied = False

    def wait_device(self) -> None:
        for stream in list(self._streams):
            self.wait_stream(stream)

    def record(self, stream: int) -> Mark:
        own = self._of(stream)
        return Mark(stream, own.launched)

    def depend(self, stream: int, mark: Mark) -> None:
        """A stream waits for an event: it is as busy as that one's stream."""
        if not self.is_done(mark):
            self.launch(stream)

    def is_done(self, mark: Mark) -> bool:
        """Whether the host has surely waited for it: never recorded, or what came before it is done."""
        return mark.place <= self._of(mark.stream).done

    def query(self, mark: Mark) -> bool:
        """Whether it is done, for a program that asks without waiting."""
        own = self._of(mark.stream)
        if mark.place <= own.done or (not self.occupied and mark.place <= own.launched - _LAG):
            return True
        mark.queries += 1
        if mark.queries <= _PATIENCE:
            return False
        self.wait_mark(mark)
        return True

    def wait_mark(self, mark: Mark) -> None:
        own = self._of(mark.stream)
        own.done = max(own.done, mark.place)
        if mark.stream == 0 and own.done >= own.launched:
            self.occupied = False

    def _of(self, stream: int) -> _Stream:
        found = self._streams.get(stream)
        if found is None:
            found = self._streams.setdefault(stream, _Stream())
        return found
