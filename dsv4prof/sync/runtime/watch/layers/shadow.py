"""Without a GPU: tensors that say `cuda` and compute on the CPU, and tell of every call that would wait."""

from __future__ import annotations

import threading
from typing import Any

from dsv4prof.model.syncs import Kind, Layer, Observation
from dsv4prof.sync.runtime.watch import scopes, stacks
from dsv4prof.sync.runtime.watch.hub import Hub
from dsv4prof.sync.runtime.watch.redundant import Reads, redundant


class ShadowLayer:
    """See `hub.Hooked`."""

    name: Layer = "shadow"

    def __init__(self, hub: Hub, *, vendor: str = "cuda", listener: Any = None) -> None:
        self._hub, self._vendor, self._listener = hub, vendor, listener
        self._device: Any = None
        self._local = threading.local()

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
        if observation.direction == "d2h" and observation.kind is Kind.SYNC and self._read_before(observation):
            observation = redundant(observation)
        self._hub.note(observation, stacks.known(observation.stack))

    def _read_before(self, observation: Observation) -> bool:
        """Whether this thread has read the same tensor in this step or region."""
        tensors: Any = self._device.world.here.tensors if self._device is not None else ()
        if len(tensors) != 1 or getattr(tensors[0], "inner", None) is None:
            return False
        scope = scopes.current()
        unit = scope.unit if scope is not None else None
        if getattr(self._local, "unit", self) is not unit:
            self._local.unit, self._local.reads = unit, Reads()
        # A value is the same however it is read; a shape that hangs on it is another question.
        what = observation.op if observation.code == "DSV105" else ""
        again: bool = self._local.reads.read(tensors[0].inner, what, counted=tensors[0])
        return again
