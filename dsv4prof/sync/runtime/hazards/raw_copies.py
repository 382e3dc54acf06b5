"""Copies that torch does not know of: cudaMemcpyAsync and hipMemcpyAsync called through ctypes.

Python code that reaches the runtime opens its library by name, so the opening is where it can be watched without a
preloaded library. The real function is called and noted; shadow tensors have a stand-in of their own. Handles taken
before the watch began, and compiled code, are not seen here: the driver's callbacks see those.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

_RUNTIME = re.compile(r"lib(cudart|amdhip64)\b.*")
_ASYNC = frozenset({"cudaMemcpyAsync", "hipMemcpyAsync"})
_WAITING = frozenset({"cudaMemcpy", "hipMemcpy"})
_STREAM_WAIT = frozenset({"cudaStreamSynchronize", "hipStreamSynchronize"})
_DEVICE_WAIT = frozenset({"cudaDeviceSynchronize", "hipDeviceSynchronize"})
_TO_DEVICE, _TO_HOST = 1, 2
# What `ctypes.cdll.LoadLibrary` makes.
_LOADS = "_dlltype"


class RawListener(Protocol):
    def raw_copy(self, target: int, source: int, nbytes: int, stream: int) -> None: ...
    def is_memory(self, address: int, nbytes: int, place: Any) -> None: ...
    def host_waits_stream(self, stream: int) -> None: ...
    def host_waits_device(self) -> None: ...
    def known_work(self) -> AbstractContextManager[None]: ...


@contextmanager
def raw_copies_watched(listener: RawListener) -> Iterator[None]:
    """Libraries of the runtime opened inside tell of their copies. An inner watch takes over from an outer one."""
    real, loading = ctypes.CDLL, vars(ctypes.cdll)
    before = loading.get(_LOADS)

    class Opening(type):
        """Still the class that programs derive from and ask instances of."""

        def __call__(cls, name: Any = None, *args: Any, **kwargs: Any) -> Any:
            if cls is not opened:
                return super().__call__(name, *args, **kwargs)
            library = real(name, *args, **kwargs)
            is_runtime = isinstance(name, str) and _RUNTIME.fullmatch(name.rpartition("/")[2])
            return _Library(library, listener) if is_runtime else library

        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, real if cls is opened else ()) or super().__instancecheck__(instance)

    opened = Opening("CDLL", (real,), {})
    ctypes.CDLL = opened  # type: ignore[misc,assignment]
    loading[_LOADS] = opened
    try:
        yield
    finally:
        ctypes.CDLL = real  # type: ignore[misc]
        loading[_LOADS] = before


class _Library:
    """A runtime library whose copies and waits are told; other functions are the real ones."""

    def __init__(self, real: Any, listener: RawListener) -> None:
        self._real, self._listener = real, listener

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._real, name)
        if name in _ASYNC or name in _WAITING:
            return self._copy(real, waits=name in _WAITING)
        if name in _STREAM_WAIT:
            return self._told(real, lambda *given: self._listener.host_waits_stream(_number(given[0]) if given else 0))
        if name in _DEVICE_WAIT:
            return self._told(real, lambda *_: self._listener.host_waits_device())
        return real

    def __getitem__(self, name: str) -> Any:
        return getattr(self, name)

    def _copy(self, real: Any, *, waits: bool) -> Callable[..., int]:
        def copy(target: Any, source: Any, nbytes: Any, kind: Any = 4, stream: Any = 0) -> int:
            to, from_, size, way, on = map(_number, (target, source, nbytes, kind, stream))
            with self._listener.known_work():
                status = int(real(target, source, nbytes, kind, *(() if waits else (stream,))))
            if status == 0 and size:
                self._tell(to, from_, size, way, on)
                if waits:
                    self._listener.host_waits_stream(on)
            return status

        return copy

    def _tell(self, to: int, from_: int, size: int, way: int, stream: int) -> None:
        if way in (_TO_DEVICE, _TO_HOST):
            host, device = (from_, to) if way == _TO_DEVICE else (to, from_)
            # What no tensor was seen to have: memory that other code pinned, as far as one can know.
            self._listener.is_memory(host, size, "pinned")
            self._listener.is_memory(device, size, "device")
        self._listener.raw_copy(to, from_, size, stream)

    def _told(self, real: Any, tell: Callable[..., None]) -> Callable[..., int]:
        def call(*given: Any) -> int:
            status = int(real(*given))
            tell(*given)
            return status

        return call


def _number(value: Any) -> int:
    """Plain integers and ctypes' boxes; a null pointer is 0."""
    return int(getattr(value, "value", value) or 0)
