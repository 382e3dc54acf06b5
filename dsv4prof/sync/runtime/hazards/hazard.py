"""A hazard as people read it: its class, what both sides did and where, on which memory, and what would order them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from dsv4prof.model.syncs import Frame
from dsv4prof.sync.runtime.hazards.judge import Conflict, Party
from dsv4prof.sync.runtime.hazards.sites import Marks

ORDERS: dict[str, str] = {
    "overwritten": "an event recorded after the copy and waited for before the buffer is written again, or a ring of "
    "buffers that the sender owns",
    "freed": "an event recorded after the copy and waited for before the buffer is freed, or a copy that torch makes, "
    "of which its pinned allocator knows",
    "read-early": "an event recorded after the copy, on the copy's stream, and waited for before the read",
    "write-after-read": "wait_stream, or wait_event for an event recorded after the read, on the stream that writes",
    "read-after-write": "wait_stream, or wait_event for an event recorded after the write, on the stream that reads",
    "write-after-write": "wait_stream, or wait_event for an event recorded after the first write",
    "freed-in-use": "record_stream for the stream that uses it, or a reference kept until that stream was waited for",
    "output-size": "the exact total, from the same lengths that the repeats were made from",
    "plan-changed": "a copy of the plan that nobody else writes, or an order between the writer and the replay",
}
SENTENCES: dict[str, str] = {
    "overwritten": "the host writes a buffer while a copy of it is pending",
    "freed": "a host buffer is freed while a raw copy from it is pending",
    "read-early": "the host reads a copy before it has arrived",
    "write-after-read": "a stream writes memory that another stream may still read",
    "read-after-write": "a stream reads memory that another stream may not have written yet",
    "write-after-write": "two streams write the same memory without an order",
    "freed-in-use": "device memory goes back to its allocator while another stream may still use it",
    "output-size": "output_size is not the sum of the repeats",
    "plan-changed": "tensors of a plan changed between its making and its use",
}


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """One party. `stream` is None for the host, `stack` innermost first."""

    op: str
    does: str
    stream: int | None
    stack: tuple[Frame, ...] = ()
    step: int | None = None
    region: str = ""

    def where(self) -> str:
        place = (
            f"{self.stack[0].file}:{self.stack[0].line} in {self.stack[0].function}" if self.stack else "unknown place"
        )
        return f"{self.op} ({place})"


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """The buffer that both touch; `made` is the stack of where it was first seen."""

    address: int
    nbytes: int
    place: str
    low: int = 0
    high: int = 0
    made: tuple[Frame, ...] = ()


class Hazard(msgspec.Struct, frozen=True, kw_only=True):
    """`first` was begun and may not be over when `second` comes; of a broken promise only `second` is known.

    `seen` is how often, `facts` are numbers and words of the case (`given` and `actual` of an output_size).
    """

    code: str
    trouble: str
    second: Side
    first: Side | None = None
    memory: Memory | None = None
    seen: int = 1
    facts: dict[str, int | str] = {}

    @property
    def sentence(self) -> str:
        return SENTENCES[self.trouble]

    @property
    def order(self) -> str:
        """What would have ordered the two."""
        return ORDERS[self.trouble]


def hazards_of(conflicts: Iterable[Conflict], frames: Sequence[tuple[Frame, ...]], marks: Marks) -> list[Hazard]:
    """Conflicts with their tables looked up."""

    def side(party: Party) -> Side:
        mark = marks[party.mark]
        return Side(
            op=party.op,
            does=party.does,
            stream=party.stream,
            stack=frames[party.site],
            step=mark.step,
            region=mark.region,
        )

    found = [
        Hazard(
            code=conflict.code,
            trouble=conflict.trouble,
            first=side(conflict.first),
            second=side(conflict.second),
            memory=Memory(
                address=conflict.buffer.address,
                nbytes=conflict.buffer.nbytes,
                place=conflict.buffer.place,
                low=conflict.span.low,
                high=conflict.span.high,
                made=frames[conflict.buffer.site],
            ),
            seen=conflict.seen,
        )
        for conflict in conflicts
    ]
    return _once(found)


def near(stack: tuple[Frame, ...]) -> tuple[Frame, ...]:
    """The frames of the innermost file, and the one that led into it."""
    for at, frame in enumerate(stack):
        if frame.file != stack[0].file:
            return stack[: at + 1]
    return stack


def _once(hazards: Iterable[Hazard]) -> list[Hazard]:
    """Calls of one line, for the same line of the file that led there, are one place."""
    known: dict[tuple[object, ...], Hazard] = {}
    for hazard in hazards:
        first, second = hazard.first, hazard.second
        key = (hazard.trouble, first and (first.op, near(first.stack)), second.op, near(second.stack))
        before = known.get(key)
        known[key] = hazard if before is None else msgspec.structs.replace(before, seen=before.seen + hazard.seen)
    return list(known.values())
