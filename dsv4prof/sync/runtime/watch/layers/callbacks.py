"""What the driver's own tracing calls back at: every library of the process, with the time that each wait took.

A callback takes Python's lock on the thread that waits. Calls that are made while the allocator holds a lock of its
own (cudaMalloc, cudaFree, pinning) are therefore heard only on request: another thread may hold Python's lock and want
the allocator's. With several threads, a measured time can include a wait for Python's lock.
"""

from __future__ import annotations

import threading
import time
from typing import Any

import msgspec

from dsv4prof.model.syncs import Direction, Kind, Layer, Observation
from dsv4prof.sync.runtime.watch import stacks
from dsv4prof.sync.runtime.watch.hub import Hub, LayerMissingError
from dsv4prof.sync.runtime.watch.layers.drivers import CopyParameters, Driver
from dsv4prof.sync.runtime.watch.merging import Call
from dsv4prof.trace.vendor import ALLOCATION, ASYNC_COPY, BLOCKING_COPY, SYNCHRONIZE

# A copy or allocation that returns sooner has not waited for a device that was busy.
_LONG_NS = 1_000_000
_H2D = 1
_FORMS = {"device": "cuda-synchronize", "event": "event-synchronize", "stream": ""}


class CallbacksLayer:
    """See `hub.Hooked`. `driver` is chosen by vendor; `allocations` also hears calls that may hold locks. What takes
    less than `least_ns` has not waited: for whoever knows that the device is busy for longer.
    """

    name: Layer = "callbacks"

    def __init__(
        self,
        hub: Hub,
        *,
        vendor: str = "cuda",
        listener: Any = None,
        driver: Driver | None = None,
        allocations: bool = False,
        least_ns: int = 0,
    ) -> None:
        self._hub, self._vendor, self._listener = hub, vendor, listener
        self._driver = driver
        self._allocations, self._least_ns = allocations, least_ns
        self._local = threading.local()

    def start(self) -> None:
        if _profiling():
            raise LayerMissingError(
                "a profiler records, and only one of the two can have the driver's callbacks",
                hint="watch without the profiler, or leave out the layer callbacks",
            )
        driver = self._driver if self._driver is not None else _driver()
        names = {*SYNCHRONIZE, *BLOCKING_COPY, *ASYNC_COPY, *(ALLOCATION if self._allocations else ())}
        driver.start(sorted(names), self._heard)
        self._driver = driver

    def stop(self) -> None:
        if self._driver is not None:
            self._driver.stop()

    def rearm(self) -> None:
        return None

    def _heard(self, name: str, entering: bool, parameters: int) -> None:
        """The runtime calls the driver, which calls back as well: the outermost of them counts."""
        local = self._local
        depth: int = getattr(local, "depth", 0)
        if entering:
            local.depth = depth + 1
            if depth == 0:
                local.began = time.monotonic_ns()
                self._raw_copy(name, parameters)
            return
        local.depth = max(0, depth - 1)
        if depth != 1:
            return
        took = time.monotonic_ns() - local.began
        seen = self._observed(name, took, parameters)
        if seen is not None:
            self._tell(seen)

    def _raw_copy(self, name: str, parameters: int) -> None:
        if self._listener is None or not parameters or name not in ("cudaMemcpyAsync", "hipMemcpyAsync"):
            return
        copy = CopyParameters.from_address(parameters)
        self._listener.raw_copy_seen(copy.target or 0, copy.source or 0, copy.nbytes, copy.stream or 0)

    def _observed(self, name: str, took: int, parameters: int) -> Observation | None:
        kind, direction, form, reason = Kind.SYNC, "explicit", "", f"{name} waits for the device"
        if name in SYNCHRONIZE:
            what = SYNCHRONIZE[name]
            direction, form = ("d2h" if what == "stream" else "explicit"), _FORMS[what]
        elif name in BLOCKING_COPY:
            direction = _direction(name, parameters)
        elif took < max(_LONG_NS, self._least_ns):
            return None
        elif name in ASYNC_COPY:
            kind, direction = Kind.SILENT, _direction(name, parameters)
            reason = f"{name} took so long that it waited: memory that is pageable, or not dense"
        elif "Free" in name and "Host" not in name:
            kind, direction, reason = Kind.SILENT, "alloc", f"{name} waits for the device"
        else:
            kind, direction, reason = Kind.SUSPECT, "alloc", f"{name} stalled the host"
        if took < self._least_ns:
            kind, reason = Kind.SUSPECT, f"{name} had nothing to wait for"
        wait: Direction = direction  # type: ignore[assignment]
        return Observation(
            layer=self.name, kind=kind, direction=wait, op=name, reason=reason, form=form,
            code={"explicit": "DSV106", "alloc": "DSV111"}.get(direction, ""), blocked_ns=took,
        )  # fmt: skip

    def _tell(self, seen: Observation) -> None:
        """A copy that waited and the wait that follows it are one call of torch."""
        place = stacks.here()
        last: tuple[object, Call] | None = getattr(self._local, "copied", None)
        self._local.copied = None
        if last is not None and last[0] == place.key and seen.op.endswith("StreamSynchronize"):
            call = last[1]
            call.observations = [_both(each, seen) for each in call.observations]
            return
        call = self._hub.note(seen, place)
        if seen.op in ASYNC_COPY:
            self._local.copied = (place.key, call)


def _both(copied: Observation, waited: Observation) -> Observation:
    if copied.layer != waited.layer:
        return copied
    return msgspec.structs.replace(
        copied,
        kind=Kind.SYNC,
        reason=f"{copied.op} and {waited.op} wait for the device",
        blocked_ns=(copied.blocked_ns or 0) + (waited.blocked_ns or 0),
    )


def _direction(name: str, parameters: int) -> Direction:
    if "HtoD" in name:
        return "h2d"
    if "DtoH" in name or not parameters or "2D" in name:
        return "d2h"
    return "h2d" if CopyParameters.from_address(parameters).kind == _H2D else "d2h"


def _profiling() -> bool:
    import torch

    asked = getattr(torch._C._autograd, "_profiler_enabled", None)
    return bool(asked()) if asked is not None else False


def _driver() -> Driver:
    import torch

    if torch.version.hip:
        from dsv4prof.sync.runtime.watch.layers.roctracer import Roctracer

        return Roctracer()
    from dsv4prof.sync.runtime.watch.layers.cupti import Cupti

    return Cupti()
