"""Captured graphs: what runs during a capture is kept, and runs again on the same tensors at every replay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import torch

from dsv4prof.sync.runtime.shadow.tensor import inner_of
from dsv4prof.sync.runtime.shadow.world import World


class ShadowGraph:
    """Stands for `torch.cuda.CUDAGraph`. As on a device, waiting during a capture is an error."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._steps: list[tuple[Any, Callable[[], Any], Any]] = []

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return torch.cuda.CUDAGraph

    def capture_begin(self, pool: Any = None, capture_error_mode: str = "global", **options: Any) -> None:
        self._steps.clear()
        self._world.here.graph = self

    def capture_end(self) -> None:
        self._world.here.graph = None

    def add(self, call: Any, again: Callable[[], Any], result: Any) -> None:
        """An operator that was captured. again: computes it once more, on host tensors."""
        self._steps.append((call, again, result))

    def replay(self) -> None:
        world = self._world
        world.timeline.launch(world.here.stream)
        for captured, again, result in self._steps:
            # Whatever streams it was captured on, a graph runs on the one that it is launched on.
            call = msgspec.structs.replace(captured, stream=world.here.stream)
            world.begins(call)
            with world.unseen():
                _write(result, again())
            world.ran(call, result)

    def reset(self) -> None:
        self._steps.clear()

    def instantiate(self) -> None:
        """Nothing is compiled here."""

    def pool(self) -> tuple[int, int]:
        return (0, 1)

    def enable_debug_mode(self) -> None:
        """There is nothing to show."""

    def debug_dump(self, debug_path: str) -> None:
        """There is nothing to show."""


def _write(old: Any, new: Any) -> None:
    """A result of the capture takes the values of the replay, unless it is the same memory (a view, in place)."""
    if isinstance(old, torch.Tensor) and isinstance(new, torch.Tensor):
        left, right = inner_of(old), inner_of(new)
        if left.data_ptr() != right.data_ptr():
            left.copy_(right)
    elif isinstance(old, (list, tuple)) and isinstance(new, (list, tuple)):
        for one, other in zip(old, new, strict=True):
            _write(one, other)
