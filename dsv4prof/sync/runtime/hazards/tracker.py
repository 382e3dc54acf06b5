"""Hears what a program does with a device, writes it down, and judges it at once.

It needs no torch to be imported and none of a program's values. Who feeds it (shadow tensors on a CPU, a dispatch mode
on a GPU) tells where tensors lie; everything else follows from addresses and order.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from dsv4prof.sync.runtime.calls import OpCall, Place
from dsv4prof.sync.runtime.hazards.buffers import Buffers
from dsv4prof.sync.runtime.hazards.contents import Contents
from dsv4prof.sync.runtime.hazards.contracts import Contracts
from dsv4prof.sync.runtime.hazards.events import (
    Event,
    Freed,
    HostOrDevice,
    HostUse,
    HostWaits,
    Made,
    Recorded,
    Span,
    StreamWaits,
    Work,
)
from dsv4prof.sync.runtime.hazards.hazard import Hazard, hazards_of
from dsv4prof.sync.runtime.hazards.judge import Judge
from dsv4prof.sync.runtime.hazards.log import FORMAT, Keeper, Log
from dsv4prof.sync.runtime.hazards.sites import Marks, Sites

if TYPE_CHECKING:
    from dsv4prof.sync.runtime.hazards.tensors import Memory

_OUTSIDE = "a write outside of torch"
_RAW = "a raw copy"


def _itself(tensor: Any) -> Any:
    return tensor


class HazardTracker:
    """A `DeviceListener`. `inner_of` gives the tensor whose memory counts: a shadow's inner one, else the tensor."""

    def __init__(self, *, inner_of: Callable[[Any], Any] = _itself, keep_log: bool = True) -> None:
        self._inner_of = inner_of
        self._judge, self._buffers, self._sites = Judge(), Buffers(), Sites()
        self._contents = Contents()
        # Addresses of pinned buffers, by number.
        self._pinned: dict[int, int] = {}
        self._handed_out: dict[int, int] = {}
        self._keeper = Keeper() if keep_log else None
        self._marks = Marks()
        self._mark, self._steps = 0, 0
        # Where the operator that is being told was called: walked to once, and only for what needs it.
        self._site: int | None = None
        self._last_wait: HostWaits | None = None
        self._operators: Any = None
        self.contracts = Contracts(inner_of)
        # Spans that captured graphs read and write, in order; the one that is being captured.
        self._graphs: dict[int, tuple[dict[Span, None], dict[Span, None]]] = {}
        self._capturing: tuple[dict[Span, None], dict[Span, None]] | None = None
        # Finalizers may run within an event, on any thread.
        self._lock = threading.RLock()
        self._known_work = threading.local()
        self._late_frees: list[int] = []
        self._busy = False

    def enter(self, *, step: int | None = None, region: str = "") -> None:
        """From now on the program is in this step and region."""
        self._mark = self._marks.number(step, region)
        if step is not None:
            self._steps = max(self._steps, step + 1)

    def place(self) -> tuple[int, int]:
        """Where the program is: the numbers of its stack, and of its step and region."""
        return self._sites.here(), self._mark

    def hazards(self) -> list[Hazard]:
        """What was found so far, in the order in which it was found first."""
        frames, marks = self._sites.frames(), self._marks
        found = hazards_of(self._judge.conflicts.values(), frames, marks)
        return found + self.contracts.hazards(frames, marks)

    def log(self, *, command: str = "") -> Log:
        """The run, to be judged again."""
        assert self._keeper is not None, "no log is kept"
        with self._lock:
            self._keeper.compact()
            return Log(
                format=FORMAT,
                command=command,
                steps=self._steps,
                sites=self._sites.frames(),
                regions=self._marks.regions,
                totals=self.contracts.totals(),
                found=self.hazards(),
                lost=self._keeper.lost,
                unheard=0 if self.contracts.sums is None else self.contracts.sums.missing,
                events=list(self._keeper.events),
            )

    def op_begins(self, call: OpCall) -> None:
        if call.name == "aten::repeat_interleave":
            with self._lock:
                self.contracts.before(call, site=self._sites.here(), mark=self._mark)

    def op(self, call: OpCall, result: Any) -> None:
        with self._lock:
            if self._operators is None:
                from dsv4prof.sync.runtime.hazards.operators import Operators

                self._operators = Operators(self, self._inner_of)
            self._site = None
            if call.name == "aten::repeat_interleave":
                self.contracts.after(call, result, site=self._here())
            for event in self._operators.events_of(call, result, site=self._here, mark=self._mark):
                self._feed(event)

    def event_recorded(self, event: int, stream: int) -> None:
        self._locked(Recorded(event, stream))

    def stream_waits_event(self, stream: int, event: int) -> None:
        self._locked(StreamWaits(stream, event=event))

    def stream_waits_stream(self, stream: int, other: int) -> None:
        self._locked(StreamWaits(stream, other=other))

    def host_waits_event(self, event: int) -> None:
        self._locked(HostWaits("Event.synchronize", self._sites.here(), self._mark, event=event))

    def host_waits_stream(self, stream: int) -> None:
        with self._lock:
            site, last = self._sites.here(), self._last_wait
            # An operator that waits has been told, and some feeders tell its wait as well.
            if last is None or (last.site, last.stream) != (site, stream):
                self._feed(HostWaits("Stream.synchronize", site, self._mark, stream=stream))

    def host_waits_device(self) -> None:
        self._locked(HostWaits("synchronize", self._sites.here(), self._mark))

    def event_queried(self, event: int, done: bool) -> None:
        if done:
            self._locked(HostWaits("Event.query", self._sites.here(), self._mark, event=event))

    @contextmanager
    def known_work(self) -> Iterator[None]:
        """What this thread queues in the block is told by itself: copies that the driver reports are part of it."""
        self._known_work.depth = getattr(self._known_work, "depth", 0) + 1
        try:
            yield
        finally:
            self._known_work.depth -= 1

    def raw_copy_seen(self, target: int, source: int, nbytes: int, stream: int) -> None:
        """The driver reports an asynchronous copy, of whoever: told unless something else tells it."""
        if not getattr(self._known_work, "depth", 0):
            self.raw_copy(target, source, nbytes, stream)

    def raw_copy(self, target: int, source: int, nbytes: int, stream: int) -> None:
        with self._lock:
            site = self._sites.here()
            to, from_ = self._range(target, nbytes, site), self._range(source, nbytes, site)
            if self._is_pageable(source):
                # The driver takes pageable bytes before the call returns.
                self._feed(HostUse(_RAW, (from_,), (), site, self._mark))
                self._feed(Work(stream, _RAW, (), (to,), site, self._mark, False))
                return
            self._feed(Work(stream, _RAW, (from_,), (to,), site, self._mark, False))

    def is_memory(self, address: int, nbytes: int, place: HostOrDevice) -> None:
        """Somebody knows where memory lies that no tensor of the program was seen to have."""
        with self._lock:
            if self._buffers.containing(address) is None:
                self._feed(self._buffers.make(address, nbytes, place, stream=None, site=self._sites.here()))

    def graph_begins(self, graph: int) -> None:
        """What is launched from now on is captured: it happens at each replay, and not now."""
        with self._lock:
            self._capturing = self._graphs[graph] = ({}, {})

    def graph_ends(self) -> None:
        with self._lock:
            self._capturing = None

    def graph_replayed(self, graph: int, stream: int) -> None:
        with self._lock:
            reads, writes = self._graphs.get(graph, ({}, {}))
            if reads or writes:
                site = self._sites.here()
                self._feed(Work(stream, "a graph's replay", tuple(reads), tuple(writes), site, self._mark))

    def host_reads(self, tensor: Any) -> None:
        from dsv4prof.sync.runtime.hazards.tensors import memory_of

        with self._lock:
            memory = memory_of(tensor, self._inner_of)
            buffer = self._buffers.get(memory.start) if memory is not None else None
            if memory is None or buffer is None or buffer.place == "device":
                return
            span, site = memory.span(buffer.number), self._sites.here()
            # Who took a view of the memory is who writes it, as far as anybody can see.
            self._handed_out[buffer.number] = site
            self._feed(HostUse("a read of its values", (span,), (), site, self._mark))

    def freed(self, start: int, nbytes: int) -> None:
        # A finalizer may interrupt an event on its own thread; it must not be judged in the middle of it.
        with self._lock:
            if self._busy:
                self._late_frees.append(start)
            else:
                self._free(start)

    def buffer_of(self, memory: Memory, place: Place, stream: int | None) -> tuple[int, Made | None]:
        """See `operators.Book`."""
        known = self._buffers.get(memory.start)
        if known is not None:
            known.nbytes = max(known.nbytes, memory.nbytes)
            return known.number, None
        made = self._buffers.make(memory.start, memory.nbytes, place, stream=stream, site=self._here())
        return made.buffer, made

    def _here(self) -> int:
        if self._site is None:
            self._site = self._sites.here()
        return self._site

    def _locked(self, event: Event) -> None:
        with self._lock:
            self._feed(event)

    def _feed(self, event: Event) -> None:
        if self._capturing is not None and not isinstance(event, Made):
            if isinstance(event, Work):
                self._capturing[0].update(dict.fromkeys(event.reads))
                self._capturing[1].update(dict.fromkeys(event.writes))
            return
        self._busy = True
        try:
            self._look_at_contents(event)
            self._pass(event)
            if isinstance(event, Work):
                for span in event.reads:
                    self._watch(span)
        finally:
            self._busy = False
        while self._late_frees:
            self._free(self._late_frees.pop())

    def _pass(self, event: Event) -> None:
        self._last_wait = event if isinstance(event, HostWaits) else None
        self._judge.feed(event)
        if self._keeper is not None:
            self._keeper.add(event)

    def _watch(self, span: Span) -> None:
        """Sum the bytes of a source in host memory."""
        start = self._pinned.get(span.buffer)
        if start is not None:
            self._contents.watch(span, start)

    def _look_at_contents(self, event: Event) -> None:
        """Before an order is made, and before a source is used again, see whether its bytes were written unseen."""
        if isinstance(event, HostWaits):
            for buffer in self._contents.watched():
                if self._judge.pending_from_host(buffer):
                    self._written_outside(buffer)
        elif isinstance(event, Work):
            for span in event.reads:
                self._written_outside(span.buffer)
            for span in event.writes:
                # When the device's bytes arrive is not known.
                self._contents.forget(span.buffer)
        elif isinstance(event, HostUse):
            for span in event.writes:
                self._contents.renew(span.buffer)
        elif isinstance(event, Made) and event.place == "pinned":
            self._pinned[event.buffer] = event.address

    def _written_outside(self, buffer: int) -> None:
        spans = tuple(self._contents.changed(buffer))
        if spans:
            site = self._handed_out.pop(buffer, None) or self._sites.here()
            self._pass(HostUse(_OUTSIDE, (), spans, site, self._mark, False))

    def _range(self, address: int, nbytes: int, site: int) -> Span:
        buffer = self._buffers.containing(address)
        if buffer is None:
            made = self._buffers.make(address, nbytes, "unknown", stream=None, site=site)
            self._feed(made)
            return Span(made.buffer, 0, nbytes)
        low = address - buffer.start
        buffer.nbytes = max(buffer.nbytes, low + nbytes)
        return Span(buffer.number, low, low + nbytes)

    def _is_pageable(self, address: int) -> bool:
        buffer = self._buffers.containing(address)
        return buffer is not None and buffer.place == "pageable"

    def _free(self, start: int) -> None:
        buffer = self._buffers.free(start)
        if buffer is None:
            return
        self._contents.forget(buffer.number)
        self._pinned.pop(buffer.number, None)
        self._handed_out.pop(buffer.number, None)
        # Who frees device memory is not part of any hazard: who is handed it next is.
        is_told = buffer.place != "device" and self._judge.is_pending(buffer.number)
        site = self._sites.here() if is_told else 0
        self._pass(Freed(buffer.number, site, self._mark))
