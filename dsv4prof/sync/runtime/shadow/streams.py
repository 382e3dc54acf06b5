"""Streams and events without hardware: what `torch.cuda.Stream()` and `torch.cuda.Event()` give on a shadow device."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Any

import torch

from dsv4prof.model.syncs import Kind
from dsv4prof.sync.runtime.reasons import named
from dsv4prof.sync.runtime.shadow.timeline import Mark
from dsv4prof.sync.runtime.shadow.world import World

# Handles look like addresses: programs pass them on as integers.
_STREAM_STEP, _FIRST = 0x100, 0x7000_0000


class Streams:
    """Makes streams and events for one world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._ids, self._events = itertools.count(_FIRST, _STREAM_STEP), itertools.count(1)
        self._default = ShadowStream(self, 0, 0)
        self._current = threading.local()

    def stream(self, device: Any = None, priority: int = 0, **options: Any) -> ShadowStream:
        handle = options.get("stream_ptr", options.get("stream_id"))
        index = _index_of(device, self.world)
        if handle is not None:
            return self._default if handle == 0 else ShadowStream(self, handle, index)
        return ShadowStream(self, next(self._ids), index, priority)

    def external(self, stream_ptr: int, device: Any = None, **options: Any) -> ShadowStream:
        return self.stream(device, stream_ptr=stream_ptr)

    def event(
        self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False, external: bool = False
    ) -> ShadowEvent:
        return ShadowEvent(self, next(self._events))

    def default(self, device: Any = None) -> ShadowStream:
        return self._default

    def current(self, device: Any = None) -> ShadowStream:
        return getattr(self._current, "stream", self._default)

    def set_current(self, stream: ShadowStream | None) -> None:
        """For this thread; None changes nothing, as torch.cuda.set_stream does."""
        if stream is not None:
            self._current.stream = stream
            self.world.here.stream = stream.cuda_stream

    def synchronize(self, device: Any = None) -> None:
        self.world.noted(named("cuda-synchronize", "waits for the whole device"), "torch.cuda.synchronize", ())
        self.world.timeline.wait_device()
        self.world.pending.waited()
        if self.world.listener is not None:
            self.world.listener.host_waits_device()


class StreamContext:
    """`with torch.cuda.stream(s):`; None enters nothing."""

    def __init__(self, streams: Streams, stream: ShadowStream | None) -> None:
        self._streams, self.stream = streams, stream
        self._before: list[ShadowStream] = []

    def __enter__(self) -> None:
        self._before.append(self._streams.current())
        self._streams.set_current(self.stream)

    def __exit__(self, *_: object) -> None:
        self._streams.set_current(self._before.pop())


class ShadowStream:
    """A queue of the device. `cuda_stream` is its handle, 0 the default stream."""

    def __init__(self, streams: Streams, handle: int, index: int, priority: int = 0) -> None:
        self._streams, self.cuda_stream = streams, handle
        self.stream_id = handle
        self.device_index, self.priority, self.device_type = index, priority, 1
        self.device = torch.device("cuda", index)
        self._before: list[ShadowStream] = []

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return torch.cuda.Stream

    def synchronize(self) -> None:
        world = self._streams.world
        idle = world.timeline.is_idle(self.cuda_stream)
        text = "waits for a stream" + (" that had nothing to do, so this costs a call only" if idle else "")
        kind = Kind.SUSPECT if idle else Kind.SYNC
        world.noted(named("stream-synchronize", text, kind=kind), "torch.cuda.Stream.synchronize", ())
        world.waited_for_stream(self.cuda_stream)

    def is_capturing(self) -> bool:
        return self._streams.world.here.graph is not None

    def query(self) -> bool:
        world = self._streams.world
        return world.timeline.query(world.timeline.record(self.cuda_stream))

    def record_event(self, event: ShadowEvent | None = None) -> ShadowEvent:
        event = event if event is not None else self._streams.event()
        event.record(self)
        return event

    def wait_event(self, event: ShadowEvent) -> None:
        event.wait(self)

    def wait_stream(self, stream: ShadowStream) -> None:
        world = self._streams.world
        world.timeline.depend(self.cuda_stream, world.timeline.record(stream.cuda_stream))
        if world.listener is not None:
            world.listener.stream_waits_stream(self.cuda_stream, stream.cuda_stream)

    def __enter__(self) -> ShadowStream:
        self._before.append(self._streams.current())
        self._streams.set_current(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._streams.set_current(self._before.pop())

    @property
    def _as_parameter_(self) -> Any:
        import ctypes

        return ctypes.c_void_p(self.cuda_stream)

    def __eq__(self, other: object) -> bool:
        return getattr(other, "cuda_stream", None) == self.cuda_stream

    def __hash__(self) -> int:
        return hash(self.cuda_stream)

    def __repr__(self) -> str:
        return f"<torch.cuda.Stream device={self.device} cuda_stream={self.cuda_stream:#x}>"


class ShadowEvent:
    """A place on a stream. `cuda_event` is its handle."""

    def __init__(self, streams: Streams, handle: int) -> None:
        self._streams, self.cuda_event = streams, handle
        self._mark = Mark()
        self.device = torch.device("cuda", 0)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return torch.cuda.Event

    @property
    def event_id(self) -> int:
        return self.cuda_event

    def record(self, stream: ShadowStream | None = None) -> None:
        world, stream = self._streams.world, stream or self._streams.current()
        self._mark = world.timeline.record(stream.cuda_stream)
        if world.listener is not None:
            world.listener.event_recorded(self.cuda_event, stream.cuda_stream)

    def wait(self, stream: ShadowStream | None = None) -> None:
        world, stream = self._streams.world, stream or self._streams.current()
        world.timeline.depend(stream.cuda_stream, self._mark)
        if world.listener is not None:
            world.listener.stream_waits_event(stream.cuda_stream, self.cuda_event)

    def synchronize(self) -> None:
        """An event that the host knows to be done is no wait."""
        world = self._streams.world
        if not world.timeline.is_done(self._mark):
            world.noted(named("event-synchronize", "waits for an event"), "torch.cuda.Event.synchronize", ())
            world.timeline.wait_mark(self._mark)
            world.pending.waited()
        if world.listener is not None:
            world.listener.host_waits_event(self.cuda_event)

    def query(self) -> bool:
        world = self._streams.world
        done = world.timeline.query(self._mark)
        if world.listener is not None:
            world.listener.event_queried(self.cuda_event, done)
        return done

    def elapsed_time(self, end: ShadowEvent) -> float:
        """Milliseconds; a device without hardware has no clock."""
        return 0.0

    def ipc_handle(self) -> bytes:
        return b""

    @property
    def _as_parameter_(self) -> Any:
        import ctypes

        return ctypes.c_void_p(self.cuda_event)

    def __repr__(self) -> str:
        return f"<torch.cuda.Event {self.cuda_event:#x}>"


class _OrHost(type):
    """A class of torch that gives ours for a device and torch's own for the CPU."""

    host: type
    factory: Callable[..., Any]
    ours: type

    def __call__(cls, device: Any = None, **options: Any) -> Any:
        if device is not None and not isinstance(device, int) and torch.device(device).type != "cuda":
            return cls.host(device, **options)
        return cls.factory(**options)

    def __instancecheck__(cls, instance: object) -> bool:
        return issubclass(type(instance), (cls.host, cls.ours))


def or_host(host: type, factory: Callable[..., Any], ours: type) -> type:
    """What takes the place of `torch.Event` or `torch.Stream`."""
    return _OrHost(host.__name__, (), {"host": host, "factory": staticmethod(factory), "ours": ours})


def makes(factory: Callable[..., Any]) -> Any:
    """A `__new__` for torch's own classes, so that code that holds such a class gets ours."""

    def new(cls: type, *args: Any, **options: Any) -> Any:
        return factory(*args, **options)

    return staticmethod(new)


def _index_of(device: Any, world: World) -> int:
    if device is None:
        return world.here.device
    if isinstance(device, int):
        return device
    return torch.device(device).index or 0
