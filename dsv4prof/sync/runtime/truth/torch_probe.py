"""The probe on a CUDA or HIP device, through torch."""

# dsv4prof: allow-file[DSV106,DSV111] measures waits, so it waits on purpose
from __future__ import annotations

import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from dsv4prof.errors import UsageError
from dsv4prof.sync.measured import Meta
from dsv4prof.sync.runtime.truth.probe import DeviceLostError, Traced
from dsv4prof.trace.vendor import ALLOCATION, BLOCKING_COPY, RUNTIME_CATEGORIES, SYNCHRONIZE

_RANGE = "dsv4prof.truth"
_LONG_MS = 1.0
_MOST_OPS = 24
_FREES = frozenset(name for name in ALLOCATION if "Free" in name)
_NAMED = frozenset(SYNCHRONIZE) | BLOCKING_COPY | _FREES


def require_device() -> None:
    """Raises UsageError where torch is absent or sees no device."""
    hint = "run it on a machine with a GPU and a torch that fits it; dsv4prof doctor says what is missing"
    try:
        import torch
    except ImportError:
        raise UsageError("measuring needs torch, which is not installed", hint=hint) from None
    if not torch.cuda.is_available():
        raise UsageError("there is no CUDA or HIP device here, and only a device can say which calls wait", hint=hint)


class TorchProbe:
    """See `probe.Probe`. Raises UsageError without a device."""

    def __init__(self, sleep_ms: float = 20.0) -> None:
        require_device()
        import torch

        self._torch = torch
        self._dev = torch.device("cuda", torch.cuda.current_device())
        self._mark: Any = None
        self._queue = self._calibrated(sleep_ms)
        self.sleep_ms = min(self._length_ms(self._queue) for _ in range(3))

    def meta(self, prelude: str) -> Meta:
        """Where this is measured."""
        import platform

        from dsv4prof import __version__

        torch = self._torch
        properties = torch.cuda.get_device_properties(self._dev)
        return Meta(
            prelude=prelude,
            torch=str(torch.__version__),
            cuda=torch.version.cuda,
            hip=torch.version.hip,
            device=properties.name,
            arch=properties.gcnArchName if torch.version.hip else f"sm_{properties.major}{properties.minor}",
            python=platform.python_version(),
            sleep_ms=self.sleep_ms,
            measured=datetime.now(timezone.utc).date().isoformat(),
            dsv4prof=__version__,
        )

    def namespace(self, needs: str) -> dict[str, Any]:
        import copy
        import io
        import logging
        import math
        import operator
        import pickle

        import numpy as np
        import torch.nn.functional as F
        from torch import distributed as dist

        if needs == "nccl" and not dist.is_initialized():
            dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
        names: dict[str, Any] = {"torch": self._torch, "np": np, "F": F, "dist": dist, "dev": self._dev}
        for module in (copy, io, logging, math, operator, pickle):
            names[module.__name__] = module
        names["pin"] = lambda tensor: tensor.pin_memory()
        return names

    def settle(self) -> None:
        try:
            self._torch.cuda.synchronize()
        except RuntimeError as problem:
            raise DeviceLostError(str(problem).splitlines()[0]) from problem

    def occupy(self, times: int) -> None:
        for _ in range(times):
            self._queue()
        self._mark = self._torch.cuda.Event()
        self._mark.record()

    def done(self) -> bool:
        return bool(self._mark.query())

    def now_ms(self) -> float:
        return time.perf_counter_ns() / 1e6

    def warnings_of(self, call: Callable[[], None]) -> int:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            self._torch.cuda.set_sync_debug_mode("warn")
            try:
                call()
            finally:
                self._torch.cuda.set_sync_debug_mode("default")
        # The mode announces itself once a process, as a prototype that misses some synchronizing operations.
        return sum("called a synchronizing" in str(one.message) for one in seen)

    def traced(self, call: Callable[[], None]) -> Traced:
        from torch.profiler import ProfilerActivity, profile, record_function

        with tempfile.TemporaryDirectory(prefix="dsv4prof-truth-") as folder:
            path = Path(folder) / "trace.json"
            with profile(
                activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], experimental_config=_with_sync_events()
            ) as profiler:
                self.occupy(1)
                with record_function(_RANGE):
                    call()
                self._torch.cuda.synchronize()
            profiler.export_chrome_trace(str(path))
            events: list[dict[str, Any]] = msgspec.json.decode(path.read_bytes())["traceEvents"]
        return digest(events)

    def _calibrated(self, sleep_ms: float) -> Callable[[], None]:
        """What queues a kernel of about `sleep_ms`: torch's own sleep, or products where there is none."""
        return self._calibrated_sleep(sleep_ms) or self._calibrated_products(sleep_ms)

    def _calibrated_sleep(self, sleep_ms: float) -> Callable[[], None] | None:
        sleep = getattr(self._torch.cuda, "_sleep", None)
        if sleep is None:
            return None
        cycles = 10_000_000
        for _ in range(4):
            length = self._length_ms(partial(sleep, cycles))
            if length < 1e-3:
                return None
            cycles = max(1, round(cycles * sleep_ms / length))
        return partial(sleep, cycles)

    def _calibrated_products(self, sleep_ms: float) -> Callable[[], None]:
        torch = self._torch
        left = torch.ones(4096, 4096, device=self._dev)
        out = torch.empty_like(left)
        one_ms = min(self._length_ms(lambda: torch.mm(left, left, out=out)) for _ in range(5))
        count = max(1, round(sleep_ms / max(one_ms, 1e-3)))

        def queue() -> None:
            for _ in range(count):
                torch.mm(left, left, out=out)

        return queue

    def _length_ms(self, queue: Callable[[], None]) -> float:
        start, end = (self._torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        queue()
        end.record()
        end.synchronize()
        length: float = start.elapsed_time(end)
        return length


def _with_sync_events() -> Any:
    """Kineto's cuda_sync records, where this torch can switch them on."""
    from torch._C._profiler import _ExperimentalConfig

    try:
        return _ExperimentalConfig(enable_cuda_sync_events=True)
    except TypeError:
        return None


def digest(events: list[dict[str, Any]]) -> Traced:
    """What Kineto's rows say of the calls made inside the range of a case.

    GPU rows are joined by correlation: newer versions write sync records on a track of their own.
    """
    spans = [e for e in events if e.get("cat") == "user_annotation" and e.get("name") == _RANGE]
    if not spans:
        return Traced()
    start, end = float(spans[0]["ts"]), float(spans[0]["ts"]) + float(spans[0]["dur"])
    inside = [e for e in events if e.get("ph") == "X" and start <= float(e["ts"]) <= end]
    calls = [e for e in inside if e.get("cat") in RUNTIME_CATEGORIES]
    ours = {e.get("args", {}).get("correlation") for e in calls} - {None, 0}
    joined = [e for e in events if e.get("args", {}).get("correlation") in ours]
    long = Counter[str]()
    for call in calls:
        if float(call.get("dur", 0)) >= _LONG_MS * 1e3:
            long[call["name"]] += round(float(call["dur"]))
    ops = sorted((e for e in inside if e.get("cat") == "cpu_op"), key=lambda e: float(e["ts"]))
    return Traced(
        runtime_sync=_counted(e for e in calls if e["name"] in _NAMED),
        memcpy=_counted(e for e in joined if e.get("cat") == "gpu_memcpy"),
        cuda_sync=_counted(e for e in joined if e.get("cat") == "cuda_sync"),
        waited_ms={name: length / 1e3 for name, length in sorted(long.items())},
        ops=[e["name"] for e in ops[:_MOST_OPS]],
    )


def _counted(events: Any) -> dict[str, int]:
    return dict(sorted(Counter(event["name"] for event in events).items()))
