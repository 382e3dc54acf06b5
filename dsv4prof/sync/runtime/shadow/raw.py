"""Copies through the runtime's C functions, which torch does not see: programs reach them by ctypes.

Without a device those libraries are not there. What asks for one gets a stand-in whose copies move host memory and are
told to the listener.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dsv4prof.sync.runtime.shadow.patches import Patches
from dsv4prof.sync.runtime.shadow.world import World

_LIBRARIES = ("libcudart.so", "libamdhip64.so")


def install(patches: Patches, world: World) -> None:
    """`ctypes.CDLL("libcudart...")` gives the stand-in. Code may ask in any form that CDLL takes."""
    real = ctypes.CDLL

    def load(name: Any, *args: Any, **options: Any) -> Any:
        if name is not None and Path(str(name)).name.startswith(_LIBRARIES):
            return RuntimeLibrary(world)
        return real(name, *args, **options)

    patches.put(ctypes, "CDLL", _Loader("CDLL", (real,), {"__new__": lambda cls, *a, **o: load(*a, **o)}))


class _Loader(type):
    """Looks like the class CDLL, for programs that subclass it or ask for instances."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, (cls.__bases__[0], RuntimeLibrary))


class RuntimeLibrary:
    """The functions of the CUDA and HIP runtimes that copy and wait; status 0 is success."""

    def __init__(self, world: World) -> None:
        self._world = world

    def __getattr__(self, name: str) -> Callable[..., int]:
        vendor = name[:4] if name.startswith("cuda") else name[:3]
        function = _FUNCTIONS.get(name.removeprefix(vendor))
        if function is None:
            raise AttributeError(f"the shadow of the {vendor} runtime has no function {name}")
        return lambda *args: function(self._world, *args)


def _copy_async(world: World, target: Any, source: Any, nbytes: Any, kind: Any, stream: Any = 0) -> int:
    target, source, nbytes, stream = (_number(one) for one in (target, source, nbytes, stream))
    ctypes.memmove(target, source, nbytes)
    world.timeline.launch(stream)
    if world.listener is not None:
        world.listener.raw_copy(target, source, nbytes, stream)
    return 0


def _copy(world: World, target: Any, source: Any, nbytes: Any, kind: Any) -> int:
    _copy_async(world, target, source, nbytes, kind, 0)
    world.waited_for_stream(0)
    return 0


def _synchronize(world: World, stream: Any = 0) -> int:
    world.waited_for_stream(_number(stream))
    return 0


_FUNCTIONS: dict[str, Callable[..., int]] = {
    "MemcpyAsync": _copy_async,
    "Memcpy": _copy,
    "StreamSynchronize": _synchronize,
}


def _number(value: Any) -> int:
    return int(getattr(value, "value", value) or 0)
