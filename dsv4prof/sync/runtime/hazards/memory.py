"""Which queued work may still be touching which bytes.

Only what a device does can be late: the host's own accesses are over before it queues anything more. So one table of
queued accesses is enough, and an access that the host knows to be over can be dropped: nothing that comes later can
conflict with it. That bounds the table over a long run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from dsv4prof.sync.runtime.hazards.events import Span


class Access(NamedTuple):
    """Queued work number `number` of `stream` touches `span`. told: see `events.Work`."""

    span: Span
    stream: int
    number: int
    writes: bool
    told: bool
    op: str
    site: int
    mark: int

    def before(self, clock: Mapping[int, int]) -> bool:
        return clock.get(self.stream, 0) >= self.number


class Pending:
    """Accesses that are not known to be over, by buffer."""

    def __init__(self) -> None:
        self._by_buffer: dict[int, dict[tuple[Span, int, bool, bool], Access]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._by_buffer.values()))

    def conflicts(self, span: Span, *, done: Mapping[int, int], stream: int | None, writes: bool) -> list[Access]:
        """Accesses of a common byte, one of both a write, that are neither done nor on the same stream."""
        held = self._by_buffer.get(span.buffer)
        if not held:
            return []
        return [
            access
            for access in held.values()
            if access.stream != stream
            and (writes or access.writes)
            and not access.before(done)
            and access.span.overlaps(span)
        ]

    def add(self, access: Access) -> None:
        """Remember it in place of what the same stream did there before and what it makes irrelevant."""
        held = self._by_buffer.setdefault(access.span.buffer, {})
        if access.writes and len(held) > 1:
            # Whoever is ordered behind this write is ordered behind them too.
            gone = [
                key
                for key, old in held.items()
                if old.stream == access.stream and old.told >= access.told and access.span.covers(old.span)
            ]
            for key in gone:
                del held[key]
        held[access.span, access.stream, access.writes, access.told] = access

    def has(self, buffer: int) -> bool:
        return buffer in self._by_buffer

    def of(self, buffer: int) -> list[Access]:
        return list(self._by_buffer.get(buffer, {}).values())

    def drop(self, buffer: int) -> list[Access]:
        return list(self._by_buffer.pop(buffer, {}).values())

    def prune(self, done: Mapping[int, int]) -> None:
        """Forget what the host knows to be over."""
        self._by_buffer = {
            buffer: left
            for buffer, held in self._by_buffer.items()
            if (left := {key: access for key, access in held.items() if not access.before(done)})
        }


def unfinished(accesses: Iterable[Access], done: Mapping[int, int]) -> list[Access]:
    return [access for access in accesses if not access.before(done)]
