"""Who is ordered behind whom: vector clocks of the host and of each stream.

Each work on a stream has a number there. A clock says, by stream, up to which number everything is done before what
comes next on the clock's owner. Work is queued by the host, so it comes after all that the host knows to be done; the
host learns that only by waiting. Threads of the host share one clock, in the order in which they were heard: what one
of them waited for is done for the others too, and an order that a lock between them made is not lost.
"""

from __future__ import annotations

_Clock = dict[int, int]


class Clocks:
    """Memory: a clock a stream and event, each with at most one entry a stream."""

    def __init__(self) -> None:
        self.host: _Clock = {}
        self._streams: dict[int, _Clock] = {}
        self._events: dict[int, _Clock] = {}
        self._host_version = 0
        self._told: dict[int, int] = {}

    def queued(self, stream: int) -> tuple[int, _Clock]:
        """One more work on a stream: its number, and what is done before it starts (its own stream included)."""
        clock = self._of(stream)
        number = clock.get(stream, 0) + 1
        clock[stream] = number
        return number, clock

    def stream(self, stream: int) -> _Clock:
        """What is done before the next work on a stream."""
        return self._of(stream)

    def recorded(self, event: int, stream: int) -> None:
        self._events[event] = dict(self._of(stream))

    def stream_waits_event(self, stream: int, event: int) -> None:
        _merge(self._of(stream), self._events.get(event, {}))

    def stream_waits_stream(self, stream: int, other: int) -> None:
        _merge(self._of(stream), self._of(other))

    def host_waits_event(self, event: int) -> None:
        self._host_learns(self._events.get(event, {}))

    def host_waits_stream(self, stream: int) -> None:
        self._host_learns(self._of(stream))

    def host_waits_device(self) -> None:
        for clock in list(self._streams.values()):
            self._host_learns(clock)

    def prune(self) -> None:
        """Forget events that say nothing that the host does not know."""
        host = self.host
        self._events = {
            event: clock
            for event, clock in self._events.items()
            if any(host.get(stream, 0) < number for stream, number in clock.items())
        }

    def _of(self, stream: int) -> _Clock:
        clock = self._streams.setdefault(stream, {})
        if self._told.get(stream) != self._host_version:
            self._told[stream] = self._host_version
            _merge(clock, self.host)
        return clock

    def _host_learns(self, clock: _Clock) -> None:
        if _merge(self.host, clock):
            self._host_version += 1


def _merge(target: _Clock, source: _Clock) -> bool:
    changed = False
    for stream, number in source.items():
        if target.get(stream, 0) < number:
            target[stream] = number
            changed = True
    return changed
