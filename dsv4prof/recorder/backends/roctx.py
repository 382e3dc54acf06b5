"""rocprofv3 collects from a process's start unless it is told to wait: the window then switches it on and off.

Started as `rocprofv3 --selected-regions ... -- python ...`, it collects between `roctxProfilerResume` and
`roctxProfilerPause` of librocprofiler-sdk-roctx (ROCm's ROCTx API; 0 means all threads of the process, and the answer
is 0 unless the tool refuses). It tells the process so in the environment. Not run on AMD hardware.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dsv4prof.errors import LifetimeError
from dsv4prof.recorder.backends import Remains
from dsv4prof.recorder.backends.device import DeviceWait
from dsv4prof.recorder.backends.loading import import_torch
from dsv4prof.recorder.backends.silent import SilentSource

COMMAND = "rocprofv3 --selected-regions --runtime-trace -- python ..."
_LIBRARY = "librocprofiler-sdk-roctx.so"
_ALL_THREADS = 0


class Collection:
    """The switch of whatever ROCm tool this process runs under."""

    def __init__(self, library: Any) -> None:
        self._library = library

    @classmethod
    def load(cls) -> Collection:
        """Raises LifetimeError where ROCm's library is not found or too old."""
        for name in _candidates(os.environ):
            try:
                library = ctypes.CDLL(name)
            except OSError:
                continue
            for function in ("roctxProfilerResume", "roctxProfilerPause"):
                if not hasattr(library, function):
                    raise LifetimeError(f"{name} has no {function}", hint="ROCm 6.2 or newer brings it")
                getattr(library, function).argtypes = [ctypes.c_uint64]
                getattr(library, function).restype = ctypes.c_int
            return cls(library)
        raise LifetimeError(
            f"{_LIBRARY} was not found, without which no window can be opened for rocprofv3",
            hint="it is in ROCm's lib folder: set ROCM_PATH or LD_LIBRARY_PATH, or leave rocprof out of the activities",
        )

    def resume(self) -> None:
        """Collect from now on. Raises LifetimeError when the tool refuses."""
        self._call("roctxProfilerResume")

    def pause(self) -> None:
        """Collect no more. Raises LifetimeError when the tool refuses."""
        self._call("roctxProfilerPause")

    def _call(self, function: str) -> None:
        answer = getattr(self._library, function)(_ALL_THREADS)
        if answer:
            raise LifetimeError(
                f"the ROCm profiler refused {function} (answer {answer})", hint=f"start the program with: {COMMAND}"
            )


class RocprofWindow(SilentSource):
    """rocprofv3's collection, for the window alone. rocprofv3 writes its own files when the process ends."""

    def __init__(self, *, wait: DeviceWait | None = None) -> None:
        super().__init__()
        self._wait = wait or DeviceWait(import_torch())
        self._collection: Collection | None = None
        self._open = False

    def warm_up(self) -> None:
        if os.environ.get("ROCPROF_SELECTED_REGIONS", "").lower() in ("", "0", "false", "off", "no"):
            raise LifetimeError(
                "this process does not run under rocprofv3 with selected regions, so no window can be collected",
                hint=f"start the program with: {COMMAND}",
            )
        self._collection = Collection.load()

    def prepare(self) -> None:
        if self._collection is None:
            self.warm_up()

    def start(self) -> None:
        assert self._collection is not None, "prepared before it is started"
        self._collection.resume()
        self._open = True

    def stop(self) -> None:
        if not self._open:
            return
        self._open = False
        assert self._collection is not None, "it was open"
        if not self._wait.finished():
            self.notes.append(self._wait.sentence)
        self._collection.pause()

    def release(self, *, keep: bool = False) -> list[Remains]:
        self.stop()
        return []

    def abandon(self) -> None:
        self._open = False


def _candidates(environment: Mapping[str, str]) -> list[str]:
    """As the loader finds it, and then where ROCm lies."""
    roots = [environment[name] for name in ("ROCM_PATH", "ROCM_HOME") if environment.get(name)]
    folders = [str(Path(root) / "lib" / _LIBRARY) for root in [*roots, "/opt/rocm"]]
    return [_LIBRARY, f"{_LIBRARY}.1", *folders]
