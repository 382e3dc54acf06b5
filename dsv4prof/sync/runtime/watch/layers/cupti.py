"""CUPTI's callbacks round runtime and driver calls, by ctypes: every library of the process is heard.

Only one subscriber at a time exists, and torch's profiler may be it: then it is refused. The numbers of the calls
differ from version to version, so they are looked up by name.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from dsv4prof.sync.runtime.watch.hub import LayerMissingError
from dsv4prof.sync.runtime.watch.layers.drivers import Heard

_DRIVER, _RUNTIME = 1, 2
_ENTER = 0
_MOST_CALLS = 1200
_TAKEN = 39  # CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED
_SUFFIX = re.compile(r"(_ptsz|_ptds)?(_v\d{4,5})?$")


class CallbackData(ctypes.Structure):
    """CUpti_CallbackData, up to what is read of it."""

    _fields_ = (
        ("site", ctypes.c_int),
        ("function_name", ctypes.c_char_p),
        ("parameters", ctypes.c_void_p),
        ("returned", ctypes.c_void_p),
        ("symbol_name", ctypes.c_char_p),
        ("context", ctypes.c_void_p),
        ("context_uid", ctypes.c_uint32),
        ("correlation_data", ctypes.c_void_p),
        ("correlation_id", ctypes.c_uint32),
    )
    site: int
    parameters: int | None


CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.POINTER(CallbackData))


class Cupti:
    """See `drivers.Driver`. `library` is libcupti, or what behaves like it."""

    def __init__(self, library: Any = None) -> None:
        self._library = library
        self._subscriber = ctypes.c_void_p()
        self._callback: Any = None
        self._names: dict[tuple[int, int], str] = {}

    def start(self, names: Iterable[str], heard: Heard) -> None:
        if self._library is None:
            self._library = load()
        wanted = frozenset(names)
        self._names = self._numbered(wanted)
        self._callback = CALLBACK(self._hearing(heard))
        status = self._library.cuptiSubscribe(ctypes.byref(self._subscriber), self._callback, None)
        if status == _TAKEN:
            raise LayerMissingError(
                "CUPTI has a subscriber already, such as a profiler that records",
                hint="watch without the profiler, or leave out the layer callbacks",
            )
        self._require(status, "cuptiSubscribe")
        for domain, number in self._names:
            status = self._library.cuptiEnableCallback(
                ctypes.c_uint32(1), self._subscriber, ctypes.c_int(domain), ctypes.c_uint32(number)
            )
            if status:
                self.stop()
                self._require(status, "cuptiEnableCallback")

    def stop(self) -> None:
        if self._subscriber.value:
            self._library.cuptiUnsubscribe(self._subscriber)
            self._subscriber = ctypes.c_void_p()
        self._callback = None

    def _numbered(self, wanted: frozenset[str]) -> dict[tuple[int, int], str]:
        """Bare names of the wanted calls by domain and number."""
        found: dict[tuple[int, int], str] = {}
        spelled = ctypes.c_char_p()
        for domain in (_RUNTIME, _DRIVER):
            for number in range(1, _MOST_CALLS):
                status = self._library.cuptiGetCallbackName(
                    ctypes.c_int(domain), ctypes.c_uint32(number), ctypes.byref(spelled)
                )
                if status or not spelled.value:
                    continue
                name = bare(spelled.value.decode())
                if name in wanted:
                    found[domain, number] = name
        if not found:
            raise LayerMissingError(
                "this CUPTI knows none of the calls that wait", hint="leave out the layer callbacks"
            )
        return found

    def _hearing(self, heard: Heard) -> Callable[..., None]:
        names = self._names

        def hear(_: Any, domain: int, number: int, data: Any) -> None:
            name = names.get((domain, number))
            if name is not None:
                heard(name, data[0].site == _ENTER, data[0].parameters or 0)

        return hear

    def _require(self, status: int, what: str) -> None:
        if status:
            raise LayerMissingError(f"{what} failed with {status}", hint="leave out the layer callbacks")


def bare(name: str) -> str:
    """`cudaMemcpyAsync_ptsz_v7000` -> `cudaMemcpyAsync`; a driver's own `_v2` belongs to its name."""
    return _SUFFIX.sub("", name)


def load() -> Any:
    """libcupti of the CUDA wheels that torch runs with, else of the system. Raises LayerMissingError."""
    for name in (*_in_wheels(), "libcupti.so", "libcupti.so.13", "libcupti.so.12"):
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise LayerMissingError(
        "libcupti is not there: CUDA's wheels bring it, and so does the CUDA toolkit",
        hint="pip install the nvidia-cuda-cupti wheel of torch's CUDA, or leave out the layer callbacks",
    )


def _in_wheels() -> list[str]:
    """The one that is loaded already comes first: a second copy would have subscribers of its own."""
    maps = Path("/proc/self/maps")
    loaded = []
    if maps.exists():
        words = (line.split() for line in maps.read_text().splitlines() if "libcupti.so" in line)
        loaded = [line[-1] for line in words]
    import torch

    site = Path(torch.__file__).parents[1]
    wheels = sorted(site.glob("nvidia/*/lib/libcupti.so*")) + sorted(site.glob("nvidia/*/*/lib/libcupti.so*"))
    return [*dict.fromkeys(loaded), *map(str, wheels)]
