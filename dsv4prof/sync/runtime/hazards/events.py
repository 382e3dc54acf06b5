"""What a program did with a device, reduced to what order and memory need: small facts that can be kept, saved and
judged again.

Buffers, events and streams are integers; 0 is the default stream. `site` is an index into a log's
stacks, `mark` a step with its region (`sites.Marks`). Nothing here needs torch.
"""

from __future__ import annotations

from typing import Literal

import msgspec

HostOrDevice = Literal["device", "pinned", "pageable", "unknown"]


class Span(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Bytes [low, high) of a buffer, counted from its start; of strided rows only `width` bytes every `pitch`."""

    buffer: int
    low: int
    high: int
    pitch: int = 0
    width: int = 0

    def overlaps(self, other: Span) -> bool:
        """Whether both touch a common byte; True where rows of different pitch cannot be told apart."""
        if self.buffer != other.buffer or self.low >= other.high or other.low >= self.high:
            return False
        if self.pitch == 0 or self.pitch != other.pitch:
            return True
        apart = (other.low - self.low) % self.pitch
        return apart < self.width or apart + other.width > self.pitch

    def covers(self, other: Span) -> bool:
        """Whether it touches every byte of the other."""
        inside = self.buffer == other.buffer and self.low <= other.low and other.high <= self.high
        return inside and (
            self.pitch == 0 or (self.pitch, self.width, self.low) == (other.pitch, other.width, other.low)
        )


class Made(msgspec.Struct, frozen=True, array_like=True, tag=True, gc=False):
    """Memory was seen for the first time. `stream` is the one it was allocated on, None where that was not seen."""

    buffer: int
    address: int
    nbytes: int
    place: HostOrDevice
    stream: int | None
    site: int


class Work(msgspec.Struct, frozen=True, array_like=True, tag=True, gc=False):
    """A kernel or an asynchronous copy was queued on a stream. `told`: torch's allocators know that it uses its
    memory; they do not know of a raw copy."""

    stream: int
    op: str
    reads: tuple[Span, ...]
    writes: tuple[Span, ...]
    site: int
    mark: int
    told: bool = True


class HostUse(msgspec.Struct, frozen=True, array_like=True, tag=True, gc=False):
    """The host touched its own memory. `seen` is False where only the changed content told of it."""

    op: str
    reads: tuple[Span, ...]
    writes: tuple[Span, ...]
    site: int
    mark: int
    seen: bool = True


class Recorded(msgspec.Struct, frozen=True, array_like=True, tag=True, gc=False):
    event: int
    stream: int


class StreamWaits(msgspec.Struct, frozen=True, array_like=True, tag=True, gc=False):
    """`stream` goes on after what `event` stands for, or after all that was queued on `other`."""

    stream: int
    event: int | None = None
    other: int | None = None


class HostWaits(msgspec.Struct, frozen=True, array_like=True, tag=True, gc=False):
    """The host went on after an event, a stream or the whole device (neither given). `op` is the call that waited."""

    op: str
    site: int
    mark: int
    event: int | None = None
    stream: int | None = None


class Freed(msgspec.Struct, frozen=True, array_like=True, tag=True, gc=False):
    """A buffer was given back to its allocator."""

    buffer: int
    site: int
    mark: int


class Kept(msgspec.Struct, frozen=True, array_like=True, tag=True, gc=False):
    """record_stream: the allocator waits for what is queued on `stream` by the time that the buffer is freed."""

    buffer: int
    stream: int


Event = Made | Work | HostUse | Recorded | StreamWaits | HostWaits | Freed | Kept
