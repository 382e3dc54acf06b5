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
from dsv4prof.trace.vendor import ALLOCATION, ASYNC_COPY, BLOCKING_COPY, GRAPH_LAUNCH, SYNCHRONIZE

# A copy, launch or allocation that returns sooner has not waited for a device that was busy.
_LONG_NS = 1_000_000
_LAUNCH = frozenset(
    {
        "cudaLaunchKernel",
        "cudaLaunchKernelExC",
        "cuLaunchKernel",
        "cuLaunchKernelEx",
        "hipLaunchKernel",
        "hipExtLaunchKernel",
        "hipModuleLaunchKernel",
        "hipExtModuleLaunchKernel",
    }
)
# So many launches fill the queue (1,020 were measured); with fewer a slow one loads its kernel.
_FULL_QUEUE = 1000
_H2D = 1
_FORMS = {"device": "cuda-synchronize", "event": "event-synchronize", "stream": ""}


class CallbacksLayer:
    """See `hub.Hooked`. `driver` is chosen by vendor; `allocations` also hears calls that may hold locks. `launches`
    hears every launch, so that one that waits for room in the queue is known: microseconds a launch.
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
        launches: bool = False,
    ) -> None:
        self._hub, self._vendor, self._listener = hub, vendor, listener
        self._driver = driver
        self._allocations, self._launches = allocations, launches
        # By its number, not a thread-local: a thread of C++ has a new one of those at every callback.
        self._threads: dict[int, _Thread] = {}
        self._queued = 0

    def start(self) -> None:
        if _profiling():
            raise LayerMissingError(
                "a profiler records, and only one of the two can have the driver's callbacks",
                hint="watch without the profiler, or leave out the layer callbacks",
            )
        driver = self._driver if self._driver is not None else _driver()
        names = {*SYNCHRONIZE, *BLOCKING_COPY, *ASYNC_COPY, *GRAPH_LAUNCH}
        names |= (ALLOCATION if self._allocations else frozenset()) | (_LAUNCH if self._launches else frozenset())
        driver.start(sorted(names), self._heard)
        self._driver = driver

    def stop(self) -> None:
        if self._driver is not None:
            self._driver.stop()

    def rearm(self) -> None:
        return None

    def _heard(self, name: str, entering: bool, parameters: int) -> None:
        """The runtime calls the driver, which calls back as well: the outermost of them counts."""
        number = threading.get_ident()
        mine = self._threads.get(number)
        if mine is None:
            mine = self._threads.setdefault(number, _Thread())
        if entering:
            mine.depth += 1
            if mine.depth == 1:
                mine.began_ns = time.monotonic_ns()
                self._raw_copy(name, parameters)
            return
        mine.depth = max(0, mine.depth - 1)
        if mine.depth:
            return
        seen = self._observed(name, mine.began_ns, parameters)
        self._queued = 0 if seen is not None and seen.kind.waits else self._queued + 1
        if seen is not None:
            self._tell(mine, seen)

    def _raw_copy(self, name: str, parameters: int) -> None:
        if self._listener is None or not parameters or name not in ("cudaMemcpyAsync", "hipMemcpyAsync"):
            return
        copy = CopyParameters.from_address(parameters)
        self._listener.raw_copy_seen(copy.target or 0, copy.source or 0, copy.nbytes, copy.stream or 0)

    def _observed(self, name: str, began_ns: int, parameters: int) -> Observation | None:
        took = time.monotonic_ns() - began_ns
        kind, direction, form, reason = Kind.SYNC, "explicit", "", f"{name} waits for the device"
        if name in SYNCHRONIZE:
            what = SYNCHRONIZE[name]
            direction, form = ("d2h" if what == "stream" else "explicit"), _FORMS[what]
        elif name in BLOCKING_COPY:
            direction = _direction(name, parameters)
        elif took < _LONG_NS:
            return None
        elif name in ASYNC_COPY:
            kind, direction = Kind.SILENT, _direction(name, parameters)
            reason = f"{name} took so long that it waited: memory that is pageable, or not dense"
        elif name in _LAUNCH or name in GRAPH_LAUNCH:
            full = self._queued >= _FULL_QUEUE
            kind = Kind.SILENT if full else Kind.SUSPECT
            why = "waited for room in the launch queue" if full else "stalled the host, as the first of a kernel does"
            reason = f"{name} {why}"
        elif "Free" in name and "Host" not in name:
            kind, direction, reason = Kind.SILENT, "alloc", f"{name} waits for the device"
        else:
            kind, direction, reason = Kind.SUSPECT, "alloc", f"{name} stalled the host"
        wait: Direction = direction  # type: ignore[assignment]
        return Observation(
            layer=self.name, kind=kind, direction=wait, op=name, reason=reason, form=form,
            code={"explicit": "DSV106", "alloc": "DSV111"}.get(direction, ""), start_ns=began_ns, blocked_ns=took,
        )  # fmt: skip

    def _tell(self, mine: _Thread, seen: Observation) -> None:
        """A copy that waited and the wait that follows it are one call of torch."""
        place = stacks.here()
        last, mine.copied = mine.copied, None
        if last is not None and last[0] == place.key and seen.op.endswith("StreamSynchronize"):
            call = last[1]
            call.observations = [_both(each, seen) for each in call.observations]
            return
        call = self._hub.note(seen, place)
        if seen.op in ASYNC_COPY:
            mine.copied = (place.key, call)


class _Thread:
    """What one thread is in the middle of."""

    __slots__ = ("began_ns", "copied", "depth")

    def __init__(self) -> None:
        self.depth = self.began_ns = 0
        self.copied: tuple[object, Call] | None = None


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
