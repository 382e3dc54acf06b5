"""A vendor's profiler sees kernels and no operators: torch can tell it their names, and a window can open it.

`nvtx` names operators and annotations as NVTX ranges, which are roctx ranges on ROCm builds of torch. `cuda_profiler`
opens the capture range that `nsys profile --capture-range=cudaProfilerApi` waits for; on HIP, where that call is
deprecated, the same is asked of rocprofv3 (`roctx.py`). Neither writes a file of ours, and nothing tells whether
a profiler is attached. Not run on AMD hardware.
"""

from __future__ import annotations

import weakref
from typing import Any

from dsv4prof.errors import LifetimeError
from dsv4prof.recorder.backends import Remains
from dsv4prof.recorder.backends.device import DeviceWait
from dsv4prof.recorder.backends.guard import KinetoGuard, refuse_foreign
from dsv4prof.recorder.backends.kept import keep_forever
from dsv4prof.recorder.backends.loading import import_torch, require_gpu
from dsv4prof.recorder.backends.roctx import Collection
from dsv4prof.recorder.backends.silent import SilentSource
from dsv4prof.recorder.backends.stepmark import StepMark


class NvtxRanges(SilentSource):
    """Every operator and annotation of the recorded thread as a range, through `torch.autograd.profiler.emit_nvtx`.

    torch counts this as profiling: no other torch profiler can run meanwhile.
    """

    def __init__(self, *, record_shapes: bool = False, wait: DeviceWait | None = None) -> None:
        super().__init__()
        self._torch = import_torch()
        self._record_shapes = record_shapes
        self._wait = wait or DeviceWait(self._torch)
        self._mark = StepMark(self._torch)
        self._guard = KinetoGuard(self._torch)
        self._emitter: Any = None
        self._running = False

    def warm_up(self) -> None:
        require_gpu(self._torch, "NVTX ranges")
        refuse_foreign(self._torch)

    def prepare(self) -> None:
        require_gpu(self._torch, "NVTX ranges")
        refuse_foreign(self._torch)
        self._emitter = self._torch.autograd.profiler.emit_nvtx(record_shapes=self._record_shapes)
        self._guard.close(self._emitter)

    def start(self) -> None:
        # torch synchronizes here by itself; on a GPU that hangs the program would stand still for a recording.
        if not self._wait.finished():
            raise LifetimeError(
                f"the GPU did not finish within {self._wait.patience_s:g} s, and NVTX ranges begin with a wait for it",
                hint="the GPU hangs, or is that far behind; record the CPU with activities='cpu'",
            )
        self._emitter.__enter__()
        self._running = True

    def mark(self, step: int | None) -> None:
        self._mark.move(step)

    def stop(self) -> None:
        if not self._running:
            return
        self._running = False
        try:
            self._mark.move(None)
            if self._wait.finished():
                self._emitter.__exit__(None, None, None)
            else:
                self.notes.append(self._wait.sentence)
                self._torch.autograd._disable_profiler()
                self._torch.autograd.profiler._run_on_profiler_stop()
        finally:
            self._guard.open()

    def abandon(self) -> None:
        keep_forever(self._emitter, self._mark.forget())
        self._emitter = None
        self._running = False

    def release(self, *, keep: bool = False) -> list[Remains]:
        self.stop()
        self._guard.open()
        emitter, self._emitter = self._emitter, None
        return [] if emitter is None else [Remains("NVTX emitter", weakref.ref(emitter))]


class CaptureRange(SilentSource):
    """The window as the capture range of a profiler that is attached from outside."""

    def __init__(self, *, wait: DeviceWait | None = None) -> None:
        super().__init__()
        self._torch = import_torch()
        self._wait = wait or DeviceWait(self._torch)
        self._collection: Collection | None = None
        self._open = False

    def warm_up(self) -> None:
        require_gpu(self._torch, "capture ranges of a vendor's profiler")
        if self._torch.version.hip:
            self._collection = Collection.load()

    def prepare(self) -> None:
        self.warm_up()

    def start(self) -> None:
        if self._collection is not None:
            self._collection.resume()
        else:
            self._call("cudaProfilerStart")
        self._open = True

    def stop(self) -> None:
        if not self._open:
            return
        self._open = False
        if not self._wait.finished():
            self.notes.append(self._wait.sentence)
        if self._collection is not None:
            self._collection.pause()
        else:
            self._call("cudaProfilerStop")

    def release(self, *, keep: bool = False) -> list[Remains]:
        self.stop()
        return []

    def abandon(self) -> None:
        self._open = False

    def _call(self, name: str) -> None:
        try:
            self._torch.cuda.check_error(getattr(self._torch.cuda.cudart(), name)())
        except (AttributeError, RuntimeError) as error:
            raise LifetimeError(
                f"the capture range of the CUDA profiler could not be switched: {name}: {error}",
                hint="leave cuda_profiler out of the activities",
            ) from error
