"""From what a program did to what may go wrong: two parties that touch the same bytes, one of them writing, with no
order between them.

A judge hears events one after the other and keeps clocks, queued accesses and conflicts, each bounded by the number of
streams, live views and pairs of places. It knows no tensors and no stacks.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

import msgspec

from dsv4prof.sync.runtime.hazards.clocks import Clocks
from dsv4prof.sync.runtime.hazards.events import (
    Event,
    Freed,
    HostUse,
    HostWaits,
    Kept,
    Made,
    Recorded,
    Span,
    StreamWaits,
    Work,
)
from dsv4prof.sync.runtime.hazards.memory import Access, Pending, unfinished

Trouble = Literal[
    "overwritten", "freed", "read-early", "write-after-read", "read-after-write", "write-after-write", "freed-in-use"
]
CODES: dict[Trouble, str] = {
    "read-early": "DSV202",
    "overwritten": "DSV203",
    "freed": "DSV203",
    "write-after-read": "DSV204",
    "read-after-write": "DSV204",
    "write-after-write": "DSV204",
    "freed-in-use": "DSV204",
}
_PRUNE_EVERY = 512


class Party(NamedTuple):
    """One side of a conflict; `stream` is None for the host."""

    op: str
    does: Literal["reads", "writes", "frees", "takes over"]
    stream: int | None
    site: int
    mark: int


class Conflict(msgspec.Struct):
    """`first` was queued, and `second` came while it may not have been over. `seen` is how often."""

    trouble: Trouble
    buffer: Made
    span: Span
    first: Party
    second: Party
    seen: int = 1

    @property
    def code(self) -> str:
        return CODES[self.trouble]

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for conflicts between the same two places."""
        return (self.trouble, self.first.op, self.first.site, self.second.op, self.second.site)


class _Orphan(NamedTuple):
    """Freed device memory that another stream than its own may still use."""

    buffer: Made
    accesses: list[Access]


class Judge:
    """Give it events in order; `conflicts` holds what was found so far."""

    def __init__(self) -> None:
        self.conflicts: dict[tuple[object, ...], Conflict] = {}
        self._clocks = Clocks()
        self._pending = Pending()
        self._buffers: dict[int, Made] = {}
        self._kept: dict[int, set[int]] = {}
        self._orphans: dict[int, list[_Orphan]] = {}
        self._since_prune = 0

    @property
    def size(self) -> int:
        """Queued accesses held now."""
        return len(self._pending)

    def pending_from_host(self, buffer: int) -> list[Access]:
        """Accesses of a buffer that the host does not know to be over."""
        return unfinished(self._pending.of(buffer), self._clocks.host)

    def is_pending(self, buffer: int) -> bool:
        """Whether anything that uses the buffer may be queued still."""
        return self._pending.has(buffer)

    def feed(self, event: Event) -> None:
        if isinstance(event, Work):
            self._work(event)
        elif isinstance(event, HostUse):
            self._host_use(event)
        elif isinstance(event, HostWaits):
            self._host_waits(event)
        elif isinstance(event, Made):
            self._made(event)
        elif isinstance(event, Freed):
            self._freed(event)
        elif isinstance(event, Recorded):
            self._clocks.recorded(event.event, event.stream)
        elif isinstance(event, StreamWaits):
            if event.event is not None:
                self._clocks.stream_waits_event(event.stream, event.event)
            if event.other is not None:
                self._clocks.stream_waits_stream(event.stream, event.other)
        elif isinstance(event, Kept):
            self._kept.setdefault(event.buffer, set()).add(event.stream)

    def _work(self, event: Work) -> None:
        number, done = self._clocks.queued(event.stream)
        for spans, writes in ((event.reads, False), (event.writes, True)):
            party = Party(event.op, "writes" if writes else "reads", event.stream, event.site, event.mark)
            for span in spans:
                for first in self._pending.conflicts(span, done=done, stream=event.stream, writes=writes):
                    self._note(_between_streams(first.writes, writes), first, party)
        for spans, writes in ((event.reads, False), (event.writes, True)):
            for span in spans:
                self._pending.add(
                    Access(span, event.stream, number, writes, event.told, event.op, event.site, event.mark)
                )

    def _host_use(self, event: HostUse) -> None:
        for spans, writes in ((event.reads, False), (event.writes, True)):
            party = Party(event.op, "writes" if writes else "reads", None, event.site, event.mark)
            for span in spans:
                for first in self._pending.conflicts(span, done=self._clocks.host, stream=None, writes=writes):
                    self._note("overwritten" if writes else "read-early", first, party)

    def _host_waits(self, event: HostWaits) -> None:
        if event.event is not None:
            self._clocks.host_waits_event(event.event)
        elif event.stream is not None:
            self._clocks.host_waits_stream(event.stream)
        else:
            self._clocks.host_waits_device()
        self._since_prune += 1
        if self._since_prune >= _PRUNE_EVERY or self.size > 100 * _PRUNE_EVERY:
            self._since_prune = 0
            self._pending.prune(self._clocks.host)
            self._clocks.prune()

    def _made(self, event: Made) -> None:
        self._buffers[event.buffer] = event
        orphans = self._orphans.pop(event.stream, []) if event.stream is not None and event.place == "device" else []
        if not orphans or event.stream is None:
            return
        done = self._clocks.stream(event.stream)
        party = Party("an allocation", "takes over", event.stream, event.site, 0)
        for orphan in orphans:
            for access in unfinished(orphan.accesses, done):
                self._note("freed-in-use", access, party, orphan.buffer)

    def _freed(self, event: Freed) -> None:
        buffer = self._buffers.pop(event.buffer, None)
        accesses = self._pending.drop(event.buffer)
        kept = self._kept.pop(event.buffer, set())
        if buffer is None or not accesses:
            return
        if buffer.place != "device":
            party = Party("a free", "frees", None, event.site, event.mark)
            for access in unfinished(accesses, self._clocks.host):
                if not access.told:
                    self._note("freed", access, party, buffer)
            return
        own = buffer.stream
        if own is None:
            return
        late = [access for access in accesses if access.stream != own and access.stream not in kept]
        late = unfinished(late, self._clocks.stream(own))
        if late:
            self._orphans.setdefault(own, []).append(_Orphan(buffer, late))

    def _note(self, trouble: Trouble, first: Access, second: Party, buffer: Made | None = None) -> None:
        party = Party(first.op, "writes" if first.writes else "reads", first.stream, first.site, first.mark)
        made = buffer or self._buffers.get(first.span.buffer)
        if made is None:
            return
        conflict = Conflict(trouble, made, first.span, party, second)
        known = self.conflicts.setdefault(conflict.key, conflict)
        if known is not conflict:
            known.seen += 1


def _between_streams(first_writes: bool, second_writes: bool) -> Trouble:
    if not second_writes:
        return "read-after-write"
    return "write-after-write" if first_writes else "write-after-read"


def judge(events: Iterable[Event]) -> dict[tuple[object, ...], Conflict]:
    """The conflicts of a whole sequence of events, by their places."""
    made = Judge()
    for event in events:
        made.feed(event)
    return made.conflicts
