"""The seam between cases and those who watch them: one detector without a device, one with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal, Protocol

from dsv4prof.errors import UsageError
from dsv4prof.model.syncs import Observation

Where = Literal["shadow", "gpu"]


class Detector(AbstractContextManager[Any], Protocol):
    """Entered once for many cases; `judge` watches one call."""

    def names(self) -> Sequence[str]:
        """The layers that watch."""

    def between(self) -> None:
        """Between two cases: nothing of the last one may matter to the next."""

    def again(self) -> bool:
        """Whether the last call has to be judged once more, in fresh names: the device may have come to rest."""

    def judge(self, run: Callable[[], None]) -> list[Observation]:
        """What was seen while `run` ran, behind a device that is busy. What `run` raises goes on."""


def detector(where: Where, *, vendor: str = "cuda", torch_version: str | None = None) -> Detector:
    """The one for a machine with ("gpu") or without a device. Raises UsageError where there is none."""
    if where == "shadow":
        from dsv4prof.sync.runtime.judging.shadow import ShadowDetector

        return ShadowDetector(vendor=vendor, torch_version=torch_version)
    try:
        from dsv4prof.sync.runtime.watch.judging import GpuDetector
    except ImportError as error:
        raise UsageError(f"the layers for a device cannot be used: {error}", hint="use --no-gpu") from error
    made: Detector = GpuDetector()
    return made
