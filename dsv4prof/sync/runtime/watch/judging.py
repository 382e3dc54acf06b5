"""All layers of a watch on a device as a detector, to be judged with cases whose answer was measured.

Imports torch inside functions only; needs a device to be entered.
"""

# dsv4prof: allow-file[DSV106,DSV111] between two cases the device has to come to rest
from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from types import TracebackType

from dsv4prof.errors import Dsv4profError, UsageError
from dsv4prof.model.syncs import Layer, Observation
from dsv4prof.sync.runtime.judging.verdicts import counts
from dsv4prof.sync.runtime.watch.choice import ON_A_GPU
from dsv4prof.sync.runtime.watch.clocked import judged_by_time
from dsv4prof.sync.runtime.watch.hub import Hooked, Hub, the_hub
from dsv4prof.sync.runtime.watch.layers import make
from dsv4prof.sync.runtime.watch.merging import Call
from dsv4prof.sync.runtime.watch.scopes import Scope, region

_BUSY_MS = 20.0
# A call that takes more of the busy time than this on its own may find the device at rest before its end.
_OWN_SHARE = 0.25
_MOST_TIMES = 60
_CYCLES = 10_000_000


class GpuDetector:
    """See `judging.detector.Detector`. In a process of its own: torch's trace cannot be switched off again.

    Raises UsageError without a device when entered. A layer that cannot work here is left out: `left_out` says why.
    """

    def __init__(self) -> None:
        self._hub: Hub = the_hub()
        self._layers: tuple[Layer, ...] = ()
        self._listening = False
        self._stack = ExitStack()
        self._calls: list[Call] = []
        self._cycles = _CYCLES
        self._times = 1
        self.left_out: list[str] = []

    def __enter__(self) -> GpuDetector:
        import torch

        if not torch.cuda.is_available():
            raise UsageError("there is no CUDA or HIP device here", hint="--no-gpu judges shadow tensors")
        vendor = "hip" if torch.version.hip else "cuda"
        for name in ON_A_GPU:
            layer = self._made(name, vendor)
            try:
                self._hub.join(self, [layer])
            except Dsv4profError as error:
                self.left_out.append(f"{name}: {error.message}")
                continue
            self._layers = (*self._layers, name)
            self._stack.callback(self._hub.leave, self, [name])
        self._cycles = self._calibrated()
        # What is there now stays: collecting it again before each case takes longer than most cases.
        gc.collect()
        gc.freeze()
        self._stack.callback(gc.unfreeze)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.close()
        self._layers = ()

    def _made(self, name: Layer, vendor: str) -> Hooked:
        if name != "callbacks":
            return make(name, self._hub, vendor=vendor)
        from dsv4prof.sync.runtime.watch.layers.callbacks import CallbacksLayer

        # One thread judges, so no lock of the allocator can be waited for by another.
        return CallbacksLayer(self._hub, vendor=vendor, allocations=True, launches=True)

    def names(self) -> Sequence[str]:
        return self._layers

    def between(self) -> None:
        import torch

        torch.cuda.synchronize()
        gc.collect()
        torch.cuda.empty_cache()

    def again(self) -> bool:
        """Whether the last call was so slow on its own that it has to be judged once more, behind more work."""
        return self._times > 1

    def judge(self, run: Callable[[], None]) -> list[Observation]:
        """What the layers saw of a call that stands behind a kernel of about 20 ms, or longer after `again`."""
        import torch

        times, self._times = self._times, 1
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        self._hub.settle_all()
        self._calls = []
        self._listening = True
        began_ns = time.monotonic_ns()
        begin.record()
        torch.cuda._sleep(times * self._cycles)
        end.record()
        try:
            with region("case"):
                run()
            took_ms = (time.monotonic_ns() - began_ns) / 1e6
            self._hub.settle_all()
        finally:
            self._listening = False
            torch.cuda.synchronize()
        seen = judged_by_time(self._calls, began_ns + round(begin.elapsed_time(end) * 1e6))
        if times == 1 and took_ms > _OWN_SHARE * _BUSY_MS and not any(map(counts, seen)):
            self._times = min(_MOST_TIMES, math.ceil(took_ms / (_OWN_SHARE * _BUSY_MS)))
        return seen

    def _calibrated(self) -> int:
        """Clock cycles of a kernel that takes about 20 ms."""
        import torch

        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(_CYCLES)
        begin.record()
        torch.cuda._sleep(_CYCLES)
        end.record()
        end.synchronize()
        took_ms: float = begin.elapsed_time(end)
        return round(_CYCLES * _BUSY_MS / max(took_ms, 1e-3))

    # What the hub tells

    def call_grew(self, call: Call, times: int, *, before: bool) -> None:
        return None

    def call_settled(self, call: Call, missing: tuple[Layer, ...]) -> None:
        if self._listening:
            self._calls.append(call)

    def scope_begun(self, scope: Scope) -> None:
        return None

    def unit_ended(self, scope: Scope) -> None:
        return None

    def scope_ended(self, scope: Scope) -> None:
        return None
