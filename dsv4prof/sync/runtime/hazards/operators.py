"""From an operator to what it does to memory, on a stream and on the host.

A kernel is queued and its memory is touched later; the host's side of a call is over when it returns. A copy is both:
from or to pinned memory without blocking it is late on both ends, and with pageable memory the driver takes the bytes
before the call returns. Imports torch through `tensors`, so it is itself only imported inside functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from dsv4prof.sync.runtime.calls import OpCall, Place
from dsv4prof.sync.runtime.hazards.events import Event, HostUse, HostWaits, Kept, Made, Span, Work
from dsv4prof.sync.runtime.hazards.tensors import (
    Effects,
    InnerOf,
    Memory,
    argument,
    effects_of,
    is_dense,
    memory_of,
    stream_number,
)
from dsv4prof.sync.runtime.reasons import reasons_of

_COPIES = {"aten::copy_": (1, 0, 2), "aten::_copy_from": (0, 1, 2)}
_TO_COPY = "aten::_to_copy"


class Book(Protocol):
    """Who knows memory by its address."""

    def buffer_of(self, memory: Memory, place: Place, stream: int | None, /) -> tuple[int, Made | None]:
        """The buffer of some memory, and its making where it is new; it was allocated on `stream` then."""


class Operators:
    """Turns operators into events; `events_of` is called after each ran."""

    def __init__(self, book: Book, inner_of: InnerOf) -> None:
        self._book, self._inner_of = book, inner_of

    def events_of(self, call: OpCall, result: Any, *, site: Callable[[], int], mark: int) -> list[Event]:
        """`site` walks the stack, so it is asked only for operators that touch memory."""
        if call.name == "aten::record_stream":
            return self._kept(call)
        effects = effects_of(call, result)
        makings: list[Event] = []
        reads = self._spans(call, effects.reads, None, makings)
        writes = self._spans(call, effects.writes, None, makings)
        is_device = any(place == "device" for place, _ in reads) or any(place == "device" for place, _ in writes)
        is_device = is_device or any(call.places(tensor) == "device" for tensor in effects.results)
        stream = call.stream if is_device else None
        results = self._spans(call, effects.results, stream, makings)
        if not effects.touches:
            return makings
        # What a result shares with an argument has been told with it; a graph's replay writes its results again.
        given = {span.buffer for _, span in (*reads, *writes)}
        writes += [(place, span) for place, span in results if span.buffer not in given]
        return makings + list(self._touches(call, effects, reads, writes, is_device=is_device, site=site(), mark=mark))

    def _touches(
        self,
        call: OpCall,
        effects: Effects,
        reads: Sequence[tuple[str, Span]],
        writes: Sequence[tuple[str, Span]],
        *,
        is_device: bool,
        site: int,
        mark: int,
    ) -> Iterator[Event]:
        host_reads, host_writes = _on_host(reads), _on_host(writes)
        if not is_device:
            if host_reads or host_writes:
                yield HostUse(call.name, host_reads, host_writes, site, mark)
            return
        device_reads, device_writes = _on_device(reads), _on_device(writes)
        late = _is_copy(call) and self._is_late(call, effects)
        if late:
            device_reads, device_writes = device_reads + host_reads, device_writes + host_writes
            host_reads = host_writes = ()
        elif _is_copy(call) and host_writes:
            # The device writes what the host has to wait for; pageable memory is there when the call returns.
            device_writes, host_writes = device_writes + host_writes, ()
        elif _is_copy(call) and self._from_pinned(call, effects):
            device_reads, host_reads = device_reads + host_reads, ()
        if host_reads or host_writes:
            yield HostUse(call.name, host_reads, host_writes, site, mark)
        if device_reads or device_writes:
            yield Work(call.stream, call.name, device_reads, device_writes, site, mark)
        if self._waits(call, late, reads, writes):
            yield HostWaits(call.name, site, mark, stream=call.stream)

    def _waits(
        self, call: OpCall, late: bool, reads: Sequence[tuple[str, Span]], writes: Sequence[tuple[str, Span]]
    ) -> bool:
        if not _is_copy(call) or _asks_not_to_wait(call):
            # A small upload from pageable memory is staged, and returns before what was queued earlier is over.
            return any(reason.kind.waits for reason in reasons_of(call))
        return not late and bool(_on_host(reads) or _on_host(writes))

    def _is_late(self, call: OpCall, effects: Effects) -> bool:
        """Whether a copy between host and device returns before it has happened."""
        if call.name == _TO_COPY:
            if not call.kwargs.get("non_blocking"):
                return False
            (source, *_), (target, *_) = effects.reads, effects.results
            if call.place_of(source) == "device":
                # torch pins the target itself.
                return True
            return call.place_of(source) == "pinned" and call.place_of(target) == "device" and self._dense(source)
        target_at, source_at, _ = _COPIES[call.name]
        if not _asks_not_to_wait(call):
            return False
        ends = [argument(call, source_at, "src"), argument(call, target_at, "self")]
        host = [end for end in ends if call.place_of(end) != "device"]
        return all(call.place_of(end) == "pinned" and self._dense(end) for end in host)

    def _from_pinned(self, call: OpCall, effects: Effects) -> bool:
        return any(call.place_of(tensor) == "pinned" for tensor in effects.reads)

    def _dense(self, tensor: Any) -> bool:
        return is_dense(tensor, self._inner_of)

    def _kept(self, call: OpCall) -> list[Event]:
        tensor, stream = argument(call, 0, "self"), argument(call, 1, "s")
        made: list[Event] = []
        spans = self._spans(call, [tensor], None, made)
        number = stream if isinstance(stream, int) else stream_number(stream)
        return made + [Kept(span.buffer, number) for _, span in spans]

    def _spans(
        self, call: OpCall, tensors: Sequence[Any], stream: int | None, makings: list[Event]
    ) -> list[tuple[str, Span]]:
        found: list[tuple[str, Span]] = []
        for tensor in tensors:
            memory = memory_of(tensor, self._inner_of)
            if memory is None:
                continue
            place = call.places(tensor)
            number, made = self._book.buffer_of(memory, place, stream)
            if made is not None:
                makings.append(made)
            found.append((place, memory.span(number)))
        return found


def _is_copy(call: OpCall) -> bool:
    return call.name == _TO_COPY or call.name in _COPIES


def _asks_not_to_wait(call: OpCall) -> bool:
    if call.name == _TO_COPY:
        return bool(call.kwargs.get("non_blocking"))
    return bool(argument(call, _COPIES[call.name][2], "non_blocking"))


def _on_host(spans: Sequence[tuple[str, Span]]) -> tuple[Span, ...]:
    return tuple(span for place, span in spans if place != "device")


def _on_device(spans: Sequence[tuple[str, Span]]) -> tuple[Span, ...]:
    return tuple(span for place, span in spans if place == "device")
