"""roctracer's callbacks round HIP runtime calls, by ctypes.

Written from its headers and never run on an AMD GPU: on one, trust what the other layers say until
`dsv4prof truth check` has agreed. rocprofiler-sdk is not offered: a tool must be there before HIP starts.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable
from typing import Any

from dsv4prof.sync.runtime.watch.hub import LayerMissingError
from dsv4prof.sync.runtime.watch.layers.drivers import Heard

_HIP_API = 3
_ENTER = 0


class ApiData(ctypes.Structure):
    """hip_api_data_t up to its arguments, which lie behind it."""

    _fields_ = (("correlation_id", ctypes.c_uint64), ("phase", ctypes.c_uint32), ("padding", ctypes.c_uint32))
    phase: int


CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_uint32, ctypes.c_uint32, ctypes.POINTER(ApiData), ctypes.c_void_p)


class Roctracer:
    """See `drivers.Driver`. `library` is libroctracer64, or what behaves like it."""

    def __init__(self, library: Any = None) -> None:
        self._library = library
        self._callback: Any = None
        self._names: dict[int, str] = {}

    def start(self, names: Iterable[str], heard: Heard) -> None:
        if self._library is None:
            self._library = load()
        for name in names:
            number, kind = ctypes.c_uint32(), ctypes.c_uint32()
            status = self._library.roctracer_op_code(
                ctypes.c_uint32(_HIP_API), name.encode(), ctypes.byref(number), ctypes.byref(kind)
            )
            if not status:
                self._names[int(number.value)] = name
        if not self._names:
            raise LayerMissingError(
                "this roctracer knows none of the calls that wait", hint="leave out the layer callbacks"
            )
        self._callback = CALLBACK(self._hearing(heard))
        for known in self._names:
            status = self._library.roctracer_enable_op_callback(
                ctypes.c_uint32(_HIP_API), ctypes.c_uint32(known), self._callback, None
            )
            if status:
                self.stop()
                raise LayerMissingError(
                    f"roctracer_enable_op_callback failed with {status}", hint="leave out the layer callbacks"
                )

    def stop(self) -> None:
        if self._callback is not None:
            for number in self._names:
                self._library.roctracer_disable_op_callback(ctypes.c_uint32(_HIP_API), ctypes.c_uint32(number))
        self._callback = None
        self._names = {}

    def _hearing(self, heard: Heard) -> Callable[..., None]:
        def hear(domain: int, number: int, data: Any, _: Any) -> None:
            name = self._names.get(number)
            if name is not None:
                heard(name, data[0].phase == _ENTER, ctypes.addressof(data[0]) + ctypes.sizeof(ApiData))

        return hear


def load() -> Any:
    """libroctracer64 of ROCm or of torch's own folder. Raises LayerMissingError."""
    import torch

    folder = torch.__file__.rpartition("/")[0]
    for name in (f"{folder}/lib/libroctracer64.so", "libroctracer64.so.4", "libroctracer64.so"):
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise LayerMissingError("libroctracer64 is not there", hint="install roctracer, or leave out the layer callbacks")
