"""The context manager that puts a shadow device in place, and everything back after it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from dsv4prof.errors import UsageError
from dsv4prof.model.syncs import Observation
from dsv4prof.sync.runtime.calls import DeviceListener
from dsv4prof.sync.runtime.shadow import cuda, current, groups, kernels, moving, raw, subclasses
from dsv4prof.sync.runtime.shadow.functions import replacements
from dsv4prof.sync.runtime.shadow.guard import accelerator, cuda_device_guard
from dsv4prof.sync.runtime.shadow.modes import FunctionMode, OperatorMode
from dsv4prof.sync.runtime.shadow.patches import Patches
from dsv4prof.sync.runtime.shadow.streams import Streams
from dsv4prof.sync.runtime.shadow.threads import follow_threads
from dsv4prof.sync.runtime.shadow.world import World


class ShadowDevice:
    """`with ShadowDevice("cuda", sink):` makes `device="cuda"` work everywhere on a machine without a GPU.

    vendor: "cuda" or "hip", which is what torch.version and the device's properties say. sink: hears an Observation for
    every wait, at once and in the thread that waits. listener: hears all that happens on the device, in order.
    torch_version: judge as that version would; default the running one. One at a time in a process. Raises UsageError
    for another vendor, LifetimeError for a second device.
    """

    def __init__(
        self,
        vendor: str,
        sink: Callable[[Observation], None],
        listener: DeviceListener | None = None,
        *,
        devices: int = 1,
        torch_version: str | None = None,
    ) -> None:
        if vendor not in ("cuda", "hip"):
            raise UsageError(f"there is no shadow of {vendor!r}", hint="say cuda or hip")
        self._vendor, self._sink, self._listener = vendor, sink, listener
        self._devices, self._version = devices, torch_version
        self._stack = ExitStack()
        self._world: World | None = None

    @property
    def world(self) -> World:
        """What the device knows; only while it is entered."""
        assert self._world is not None, "the shadow device is not entered"
        return self._world

    def forget(self) -> None:
        """This thread is on the default stream again, outside of any capture, and the device has nothing to do."""
        world = self.world
        world.here.stream, world.here.graph, world.here.device = 0, None, 0
        torch.cuda.set_stream(torch.cuda.default_stream())
        world.timeline.wait_device()
        world.pending.waited()

    def __enter__(self) -> ShadowDevice:
        with ExitStack() as stack:
            guarded = stack.enter_context(cuda_device_guard(_current_index))
            stack.enter_context(accelerator())
            world = World(sink=self._sink, listener=self._listener, guarded=guarded, torch_version=self._version)
            current.enter(world)
            stack.callback(current.leave)
            stack.callback(world.memory.close)
            patches = Patches()
            stack.callback(patches.undo)
            streams = Streams(world)
            cuda.install(patches, world, streams, vendor=self._vendor, devices=self._devices)  # type: ignore[arg-type]
            groups.install(patches, world)
            raw.install(patches, world)
            moving.install(patches)
            subclasses.install(patches)
            kernels.install(patches, world, stack)
            lifts = stack.enter_context(_visible_lifts())
            stack.enter_context(torch.backends.cudnn.flags(enabled=False))
            functions = replacements(world, lifts=lifts)
            world.mode = OperatorMode(world)
            follow_threads(patches, lambda: _entered(world, functions))
            stack.enter_context(_entered(world, functions))
            self._world, self._stack = world, stack.pop_all()
        return self

    def __exit__(self, *failure: Any) -> None:
        self._stack.close()
        self._world = None


def _current_index() -> int:
    world = current.device()
    return world.here.device if world is not None else 0


@contextmanager
def _entered(world: World, functions: dict[Callable[..., Any], Callable[..., Any]]) -> Iterator[None]:
    """The modes, in this thread. Backward stays in it, for C++ has no thread for a device that it does not know."""
    with (
        torch.autograd.set_multithreading_enabled(False),
        FunctionMode(world, functions),
        OperatorMode(world),
    ):
        yield


@contextmanager
def _visible_lifts() -> Iterator[bool]:
    """Whether `torch.tensor(values, device=...)` shows its upload, as it does where this torch can be told so."""
    switch = getattr(torch._C, "_set_only_lift_cpu_tensors", None)
    asked = getattr(torch._C, "_only_lift_cpu_tensors", None)
    if switch is None:
        yield False
        return
    before = bool(asked()) if asked is not None else False
    switch(True)
    try:
        yield True
    finally:
        switch(before)
