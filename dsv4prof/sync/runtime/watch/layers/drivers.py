"""The words between the layer that hears a driver's calls and the library that lets it: CUPTI or roctracer."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable
from typing import Protocol

Heard = Callable[[str, bool, int], None]
"""`heard(name, entering, parameters)`: a call by its bare name, and the address of its parameters."""


class Driver(Protocol):
    """A library that calls back at the runtime's functions."""

    def start(self, names: Iterable[str], heard: Heard) -> None:
        """Raises LayerMissingError where it cannot."""

    def stop(self) -> None: ...


class CopyParameters(ctypes.Structure):
    """Of cudaMemcpyAsync and hipMemcpyAsync: both vendors lay them out like this."""

    _fields_ = (
        ("target", ctypes.c_void_p),
        ("source", ctypes.c_void_p),
        ("nbytes", ctypes.c_size_t),
        ("kind", ctypes.c_int),
        ("stream", ctypes.c_void_p),
    )
    target: int | None
    source: int | None
    nbytes: int
    kind: int
    stream: int | None
