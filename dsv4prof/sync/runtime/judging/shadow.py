"""The detector without a device. Imports torch: import this module inside functions only."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

from dsv4prof.model.syncs import Observation
from dsv4prof.sync.runtime.shadow import ShadowDevice


class ShadowDetector:
    """See `detector.Detector`."""

    def __init__(self, *, vendor: str = "cuda", torch_version: str | None = None) -> None:
        self._seen: list[Observation] = []
        self._device = ShadowDevice(vendor, self._seen.append, torch_version=torch_version)

    def __enter__(self) -> ShadowDetector:
        self._device.__enter__()
        # What is there now stays: collecting it again before each case takes longer than most cases.
        gc.collect()
        gc.freeze()
        return self

    def __exit__(self, *failure: Any) -> None:
        self._device.__exit__(*failure)

    def names(self) -> tuple[str, ...]:
        return ("shadow",)

    def between(self) -> None:
        """Free what the last case left, as its warm-up on a device has done."""
        world = self._device.world
        gc.collect()
        world.memory.empty_cache()
        world.memory.limit = None
        self._device.forget()

    def again(self) -> bool:
        return False

    def judge(self, run: Callable[[], None]) -> list[Observation]:
        self._settle()
        self._device.world.timeline.occupy()
        self._seen.clear()
        try:
            run()
        finally:
            seen = list(self._seen)
            self._settle()
        return seen

    def _settle(self) -> None:
        self._device.world.timeline.wait_device()
        self._device.world.pending.waited()
