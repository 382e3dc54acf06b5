"""Without a GPU: tensors that say `cuda` and compute on the CPU, and tell of every call that would wait."""

from __future__ import annotations

from typing import Any

from dsv4prof.model.syncs import Layer, Observation
from dsv4prof.sync.runtime.watch import stacks
from dsv4prof.sync.runtime.watch.hub import Hub


class ShadowLayer:
    """See `hub.Hooked`."""

    name: Layer = "shadow"

    def __init__(self, hub: Hub, *, vendor: str = "cuda", listener: Any = None) -> None:
        self._hub, self._vendor, self._listener = hub, vendor, listener
        self._device: Any = None

    def start(self) -> None:
        from dsv4prof.sync.runtime.shadow import ShadowDevice

        self._device = ShadowDevice(vendor=self._vendor, sink=self._heard, listener=self._listener)
        self._device.__enter__()

    def stop(self) -> None:
        device, self._device = self._device, None
        if device is not None:
            device.__exit__(None, None, None)

    def rearm(self) -> None:
        return None

    def _heard(self, observation: Observation) -> None:
        self._hub.note(observation, stacks.known(observation.stack))
