"""What happened in a run, kept small enough to be judged again: the events that order and shared memory need.

Most memory of a program is touched by one stream alone and can never be part of a hazard, whatever waits are taken
away. So the log forgets it from time to time, and what is left of thousands of steps fits into a file.
"""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from pathlib import Path

import msgspec

from dsv4prof.errors import InputError
from dsv4prof.model.syncs import Frame
from dsv4prof.sync.runtime.hazards.events import Event, Freed, HostUse, Kept, Made, Span, Work
from dsv4prof.sync.runtime.hazards.hazard import Hazard

FORMAT = "dsv4prof.hazards/1"
_HOST = -1


class Total(msgspec.Struct, frozen=True):
    """What stood near an expansion that read its size back: host integers by name, and in how many calls each was the
    exact total."""

    site: int
    calls: int
    equal: dict[str, int]


class Log(msgspec.Struct, kw_only=True):
    """A run to be judged. `lost` events at its beginning were too many to keep; `ended` is the sentence of the failure
    that ended it, `gpu` whether a device was there, `unheard` how many sums of the device never arrived."""

    format: str
    command: str = ""
    steps: int = 0
    sites: list[tuple[Frame, ...]] = []
    regions: list[str] = []
    totals: list[Total] = []
    found: list[Hazard] = []
    lost: int = 0
    ended: str = ""
    gpu: bool = False
    unheard: int = 0
    events: list[Event] = []


class Keeper:
    """Events in order, with what cannot matter forgotten whenever there are `limit` of them."""

    def __init__(self, *, limit: int = 200_000) -> None:
        self.events: list[Event] = []
        self.lost = 0
        self._limit, self._next = limit, limit

    def add(self, event: Event) -> None:
        self.events.append(event)
        if len(self.events) >= self._next:
            self.compact()

    def compact(self) -> None:
        self.events = _without_private(self.events)
        if len(self.events) > 4 * self._limit:
            self._cut(2 * self._limit)
        self._next = max(self._limit, 2 * len(self.events))

    def _cut(self, keep: int) -> None:
        old, new = self.events[:-keep], self.events[-keep:]
        freed = {event.buffer for event in old if isinstance(event, Freed)}
        self.lost += len(old)
        self.events = [event for event in old if isinstance(event, Made) and event.buffer not in freed] + new


def _without_private(events: Sequence[Event]) -> list[Event]:
    """Events without the memory of one actor: gone where it was freed, else as its last use of each kind."""
    shared = _shared(events)
    freed = {event.buffer for event in events if isinstance(event, Freed)}
    seen: set[tuple[Span, int, bool]] = set()
    kept: list[Event] = []

    def matters(span: Span, actor: int, writes: bool) -> bool:
        if span.buffer in shared:
            return True
        if span.buffer in freed or (span, actor, writes) in seen:
            return False
        seen.add((span, actor, writes))
        return True

    for event in reversed(events):
        if isinstance(event, Work | HostUse):
            actor = event.stream if isinstance(event, Work) else _HOST
            reads = tuple(span for span in event.reads if matters(span, actor, False))
            writes = tuple(span for span in event.writes if matters(span, actor, True))
            if reads or writes:
                same = len(reads) == len(event.reads) and len(writes) == len(event.writes)
                kept.append(event if same else msgspec.structs.replace(event, reads=reads, writes=writes))
        elif not isinstance(event, Freed | Kept) or event.buffer in shared:
            kept.append(event)
    kept.reverse()
    return _without_makings(kept, shared, freed)


def _without_makings(events: Sequence[Event], shared: set[int], freed: set[int]) -> list[Event]:
    """Makings of private memory that is gone matter only as the first to take over what a shared buffer left."""
    armed: dict[int | None, bool] = {}
    owner: dict[int, int | None] = {}
    kept: list[Event] = []
    for event in events:
        if isinstance(event, Made):
            owner[event.buffer] = event.stream
            takes_over = event.place == "device" and armed.pop(event.stream, False)
            if event.buffer in freed and event.buffer not in shared and not takes_over:
                continue
        elif isinstance(event, Freed):
            armed[owner.get(event.buffer)] = True
        kept.append(event)
    return kept


def _shared(events: Sequence[Event]) -> set[int]:
    """Buffers that more than one stream, or the host and a stream, touch, allocate or free while it matters."""
    actors: dict[int, int] = {}
    shared: set[int] = set()
    for event in events:
        if isinstance(event, Made) and event.place == "device" and event.stream is not None:
            actors.setdefault(event.buffer, event.stream)
        if not isinstance(event, Work | HostUse):
            continue
        if isinstance(event, Work) and not event.told:
            shared.update(span.buffer for span in (*event.reads, *event.writes))
        actor = event.stream if isinstance(event, Work) else _HOST
        for span in (*event.reads, *event.writes):
            if actors.setdefault(span.buffer, actor) != actor:
                shared.add(span.buffer)
    return shared


def save(log: Log, path: Path) -> None:
    """Write it whole, as gzipped JSON. OSError goes to the caller, who knows what the file is for."""
    path.write_bytes(gzip.compress(msgspec.json.encode(log), mtime=0))


def load(path: Path) -> Log:
    """Raises InputError for what is no log of a hazard run."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise InputError(
            f"cannot read {path}: {error.strerror or error}", hint="give the file that -o named"
        ) from error
    try:
        if raw[:2] == b"\x1f\x8b":
            raw = gzip.decompress(raw)
        log = msgspec.json.decode(raw, type=Log)
    except (msgspec.MsgspecError, OSError, EOFError, ValueError) as error:
        raise InputError(
            f"{path} is no log of a hazard run: {error}", hint="`dsv4prof hazards -o FILE -- CMD` makes one"
        ) from error
    if log.format != FORMAT:
        raise InputError(f"{path} has the format {log.format!r}, not {FORMAT}", hint="make it again with this version")
    return log
