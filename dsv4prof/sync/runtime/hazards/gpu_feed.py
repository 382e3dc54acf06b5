"""What a real device is told, heard in Python: operators by a dispatch mode, streams and events by wrapped methods.

Imports torch, so it is itself only imported inside functions. Heard are the operators of the thread that starts the
feed, in eager code; streams and events of `torch.cuda` on every thread; graphs, whose captured work counts at each
replay; raw copies through ctypes (`raw_copies`). Collectives count as work of the current stream. Not heard: compiled
code that launches kernels by itself, `torch.Event` and `torch.Stream` without a device in their name. On HIP,
where torch has the same names, it has never been run.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from dsv4prof.sync.runtime.calls import OpCall, Place
from dsv4prof.sync.runtime.hazards.device_sums import DeviceSums
from dsv4prof.sync.runtime.hazards.tensors import stream_number, tensors_in
from dsv4prof.sync.runtime.hazards.tracker import HazardTracker
from dsv4prof.sync.runtime.shadow.schemas import decomposes

_NUMBER = "_dsv4prof_number"


@contextmanager
def gpu_feed(tracker: HazardTracker, *, event_type: Any = None, stream_type: Any = None) -> Iterator[None]:
    """Tell `tracker` what this process does with its device, as far as this thread's operators go.

    The types are those of the streams and events of the program; default: those of torch.cuda.
    """
    tracker.contracts.sums = sums = DeviceSums()
    with ExitStack() as opened:
        feed = _Feed(tracker, event_type or torch.cuda.Event, stream_type or torch.cuda.Stream)
        feed.wrap(opened)
        opened.callback(sums.finish)
        opened.enter_context(_Mode(tracker, feed.places))
        yield


class Places:
    """Where tensors lie, and when their memory is given back; pinned or not is asked once a storage."""

    def __init__(self, freed: Callable[[int, int], None], inner_of: Callable[[Any], Any]) -> None:
        self._freed, self._inner_of = freed, inner_of
        self._known: dict[int, Place] = {}

    def __call__(self, tensor: Any) -> Place:
        if tensor.device.type != "cpu":
            return "device"
        try:
            start = self._inner_of(tensor).untyped_storage().data_ptr()
        except RuntimeError:
            return "pageable"
        known = self._known.get(start)
        if known is None:
            if not torch.cuda.is_initialized():
                return "pageable"
            known = "pinned" if start and tensor.is_pinned() else "pageable"
            self.follow(tensor, known)
        return known

    def follow(self, tensor: Any, place: Place) -> None:
        """Hear when the storage is given back to its allocator."""
        try:
            storage = self._inner_of(tensor).untyped_storage()
            start = storage.data_ptr()
        except RuntimeError:
            # Fake tensors of a compiler have no memory.
            return
        if not start or start in self._known:
            return
        self._known[start] = place
        weakref.finalize(storage, self._gone, start, storage.nbytes()).atexit = False

    def _gone(self, start: int, nbytes: int) -> None:
        self._known.pop(start, None)
        self._freed(start, nbytes)


class _Mode(TorchDispatchMode):
    """Every operator of a thread, before it runs and after."""

    def __init__(self, tracker: HazardTracker, places: Places) -> None:
        super().__init__()
        self._tracker, self._places = tracker, places

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if decomposes(func):
            # In inference mode they arrive whole; on a device it is their parts that run.
            with self:
                return func.decompose(*args, **(kwargs or {}))
        # A watch must not be what initialises the device.
        stream = stream_number(torch.cuda.current_stream()) if torch.cuda.is_initialized() else 0
        call = OpCall(func._schema.name, func._schema.overload_name, args, kwargs or {}, self._places, stream)
        with self._tracker.known_work():
            self._tracker.op_begins(call)
            result = func(*args, **(kwargs or {}))
        for tensor in tensors_in(result):
            if tensor.device.type == "cuda" and tensor.layout is torch.strided:
                self._places.follow(tensor, "device")
        self._tracker.op(call, result)
        return result


class _Feed:
    """Methods of torch.cuda that tell before or after they do what they did."""

    def __init__(self, tracker: HazardTracker, event_type: Any, stream_type: Any) -> None:
        self._tracker, self._event_type, self._stream_type = tracker, event_type, stream_type
        self._events = itertools.count(1)
        self.places = Places(tracker.freed, tracker.contracts.inner_of)

    def wrap(self, opened: ExitStack) -> None:
        cuda, tracker, event, stream = torch.cuda, self._tracker, self._event_type, self._stream_type
        wrapped: list[tuple[Any, str, Callable[..., None]]] = [
            (event, "record", self._recorded),
            (event, "wait", self._stream_waits),
            (event, "synchronize", lambda _, which: tracker.host_waits_event(self._event(which))),
            (event, "query", lambda done, which: tracker.event_queried(self._event(which), bool(done))),
            (stream, "synchronize", lambda _, which: tracker.host_waits_stream(stream_number(which))),
            (stream, "query", self._stream_queried),
            (cuda, "synchronize", lambda *_, **__: tracker.host_waits_device()),
            (cuda.CUDAGraph, "capture_begin", lambda _, graph, *__, **___: tracker.graph_begins(id(graph))),
            (cuda.CUDAGraph, "capture_end", lambda *_: tracker.graph_ends()),
            (cuda.CUDAGraph, "replay", self._replayed),
            (torch.Tensor, "numpy", self._host_read),
            (torch.Tensor, "tolist", self._host_read),
            (torch.Tensor, "__array__", self._host_read),
        ]
        for owner, name, tell in wrapped:
            if hasattr(owner, name):
                opened.enter_context(_wrapped(owner, name, tell))

    def _recorded(self, _: Any, event: Any, stream: Any = None) -> None:
        self._tracker.event_recorded(self._event(event), stream_number(stream or torch.cuda.current_stream()))

    def _stream_waits(self, _: Any, event: Any, stream: Any = None) -> None:
        self._tracker.stream_waits_event(stream_number(stream or torch.cuda.current_stream()), self._event(event))

    def _stream_queried(self, done: Any, stream: Any) -> None:
        if done:
            self._tracker.host_waits_stream(stream_number(stream))

    def _replayed(self, _: Any, graph: Any) -> None:
        self._tracker.graph_replayed(id(graph), stream_number(torch.cuda.current_stream()))

    def _host_read(self, _: Any, tensor: Any, *__: Any, **___: Any) -> None:
        if tensor.device.type == "cpu":
            self._tracker.host_reads(tensor)

    def _event(self, event: Any) -> int:
        """A number that no other event has had."""
        number = getattr(event, _NUMBER, None)
        if number is None:
            number = next(self._events)
            setattr(event, _NUMBER, number)
        return int(number)


@contextmanager
def _wrapped(owner: Any, name: str, tell: Callable[..., None]) -> Iterator[None]:
    """`owner.name` tells after each call, with its result and arguments; as it was before at the end."""
    real = getattr(owner, name)
    inherited = name not in vars(owner)

    def told(*args: Any, **kwargs: Any) -> Any:
        result = real(*args, **kwargs)
        tell(result, *args, **kwargs)
        return result

    setattr(owner, name, told)
    try:
        yield
    finally:
        if inherited:
            delattr(owner, name)
        else:
            setattr(owner, name, real)
