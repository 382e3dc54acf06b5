"""How far the device is, without waiting for it: an event behind every so many launches, asked now and then."""

from __future__ import annotations

import threading
from collections import deque
from typing import Any, Protocol

from dsv4prof.faultrecord.layout import HOST, Cell
from dsv4prof.faultrecord.ring import RingWriter

_MOST_OUTSTANDING = 256


class Progress(Protocol):
    """Follows the completion of launches."""

    def stream(self) -> int:
        """The current stream's number."""

    def launched(self, number: int, stream: int, *, mark: bool = False) -> None:
        """A launch was made; with `mark` a marker goes right behind it."""

    def poll(self) -> bool:
        """Ask what is complete; whether anything is new. For any thread."""

    def boundary(self, number: int) -> None:
        """A step or phase ended with this record: a marker goes behind what the current stream has without one."""

    def pause(self, paused: bool) -> None:
        """While paused nobody asks the device: a capture in the strict mode ends by a question from any thread."""


class HostProgress:
    """Where nothing runs ahead of the host: what came back is complete."""

    def stream(self) -> int:
        return HOST

    def launched(self, number: int, stream: int, *, mark: bool = False) -> None:
        return

    def poll(self) -> bool:
        return False

    def boundary(self, number: int) -> None:
        return

    def pause(self, paused: bool) -> None:
        return


class LateProgress:
    """Follows the device of whoever uses it first: before that there is none to ask, and asking would make a context
    that a program which forks does not survive.
    """

    def __init__(self, ring: RingWriter, *, every: int = 32) -> None:
        self._ring = ring
        self._every = every
        self._found: DeviceProgress | None = None

    def stream(self) -> int:
        if self._found is None:
            import torch

            self._found = DeviceProgress(self._ring, device=torch.cuda.current_device(), every=self._every)
        return self._found.stream()

    def launched(self, number: int, stream: int, *, mark: bool = False) -> None:
        if self._found is not None:
            self._found.launched(number, stream, mark=mark)

    def poll(self) -> bool:
        return self._found is not None and self._found.poll()

    def boundary(self, number: int) -> None:
        if self._found is not None:
            self._found.boundary(number)

    def pause(self, paused: bool) -> None:
        # A capture uses the device, so it can be found now.
        self.stream()
        if self._found is not None:
            self._found.pause(paused)


class DeviceProgress:
    """Markers on the streams of one CUDA or HIP device: an event behind every `every` launches of a stream.

    An event's query returns at once, on both vendors. While a stream is captured nothing is marked or asked: a capture
    does not survive it. Events are used again and never destroyed, for the same reason. Once a query fails the device
    is lost: the first error is written down, and nothing more is asked.
    """

    def __init__(self, ring: RingWriter, *, device: int, every: int = 32) -> None:
        import torch

        self._ring = ring
        self._cuda: Any = torch.cuda
        raw = getattr(torch._C, "_cuda_getCurrentRawStream", None)
        self._raw = raw if raw is not None else lambda index: torch.cuda.current_stream(index).cuda_stream
        self._device = device
        self._every = every
        self._counts: dict[int, int] = {}
        self._outstanding: dict[int, deque[tuple[int, Any]]] = {}
        self._done: dict[int, int] = {}
        self._spare: list[Any] = []
        self._asking = threading.Lock()
        self.lost = False
        self._paused = False
        ring.cell(Cell.TRACKED, 1)

    def stream(self) -> int:
        return int(self._raw(self._device))

    def launched(self, number: int, stream: int, *, mark: bool = False) -> None:
        if stream == HOST or self.lost:
            return
        made = self._counts.get(stream, 0) + 1
        self._counts[stream] = made
        if mark or made >= self._every:
            self._mark(number, stream)

    def boundary(self, number: int) -> None:
        if self.lost or self._paused:
            return
        stream = self.stream()
        if self._counts.get(stream):
            self._mark(number, stream)

    def pause(self, paused: bool) -> None:
        # Whoever is asking right now is done before the capture begins.
        with self._asking:
            self._paused = paused

    def _mark(self, number: int, stream: int) -> None:
        if self._paused or self._cuda.is_current_stream_capturing():
            return
        self._counts[stream] = 0
        self.poll()
        waiting = self._outstanding.setdefault(stream, deque())
        if self.lost or len(waiting) >= _MOST_OUTSTANDING:
            return
        try:
            event = self._spare.pop() if self._spare else self._cuda.Event()
            event.record(self._cuda.current_stream(self._device))
        except RuntimeError as error:
            self._lose(error)
            return
        waiting.append((number, event))
        self._tell(stream)

    def poll(self) -> bool:
        if self.lost or not self._asking.acquire(blocking=False):
            return False
        try:
            if self._paused:
                return False
            moved = [self._ask(stream, waiting) for stream, waiting in list(self._outstanding.items())]
            return any(moved)
        except RuntimeError as error:
            self._lose(error)
            return False
        finally:
            self._asking.release()

    def _ask(self, stream: int, waiting: deque[tuple[int, Any]]) -> bool:
        before = self._done.get(stream, 0)
        while waiting and waiting[0][1].query():
            number, event = waiting.popleft()
            self._done[stream] = number
            self._spare.append(event)
        moved = self._done.get(stream, 0) > before
        if moved:
            self._tell(stream)
        return moved

    def _tell(self, stream: int) -> None:
        # The first marker still open bounds what can be running; with none, all that was marked is done.
        waiting = self._outstanding[stream]
        done = self._done.get(stream, 0)
        self._ring.progress(stream, marked=waiting[0][0] if waiting else done, done=done)

    def _lose(self, error: RuntimeError) -> None:
        self.lost = True
        self._ring.cell(Cell.DEVICE_ERROR, self._ring.name(str(error).splitlines()[0]))
