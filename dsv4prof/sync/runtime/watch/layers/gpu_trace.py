"""Torch's trace of device, stream and event synchronization, which its C++ calls at the wait itself.

It cannot be switched off again, fires at every allocation and event as well, and swallows what its callbacks raise: it
is for a process that was started for the check.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dsv4prof.model.syncs import Direction, Kind, Layer, Observation
from dsv4prof.sync.runtime.watch.hub import Hub, LayerMissingError

_WAITS: tuple[tuple[str, str, Direction, str], ...] = (
    ("Stream", "stream synchronization", "d2h", ""),
    ("Device", "device synchronization", "explicit", "cuda-synchronize"),
    ("Event", "event synchronization", "explicit", "event-synchronize"),
)


class GpuTraceLayer:
    """See `hub.Hooked`."""

    name: Layer = "gpu_trace"

    def __init__(self, hub: Hub, *, vendor: str = "cuda", listener: Any = None) -> None:
        self._hub = hub
        self._ours: list[tuple[Any, Callable[..., None]]] = []

    def start(self) -> None:
        import torch

        activate = getattr(torch._C, "_activate_gpu_trace", None)
        try:
            from torch.cuda import _gpu_trace as trace
        except ImportError:
            activate = None
        if activate is None:
            raise LayerMissingError("this torch has no trace of synchronization", hint="leave out the layer gpu_trace")
        for what, reason, direction, form in _WAITS:
            registry = getattr(trace, f"{what}SynchronizationCallbacks", None)
            if registry is None or not hasattr(registry, "callback_list"):
                self.stop()
                raise LayerMissingError(f"this torch cannot tell of a {reason}", hint="leave out the layer gpu_trace")
            hear = self._hearing(reason, direction, form)
            registry.callback_list.append(hear)
            self._ours.append((registry, hear))
        activate()

    def stop(self) -> None:
        while self._ours:
            registry, hear = self._ours.pop()
            registry.callback_list.remove(hear)

    def rearm(self) -> None:
        return None

    def _hearing(self, reason: str, direction: Direction, form: str) -> Callable[..., None]:
        code = "DSV106" if direction == "explicit" else ""

        def hear(handle: int = 0, *_: Any) -> None:
            stream = handle if direction == "d2h" else None
            self._hub.note(
                Observation(
                    layer=self.name,
                    kind=Kind.SYNC,
                    direction=direction,
                    op="",
                    reason=f"a {reason} inside torch",
                    form=form,
                    code=code,
                    stream=stream,
                )
            )

        return hear
