"""The layers of a watch, one a module; each loads when it is switched on."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from dsv4prof.model.syncs import Layer
from dsv4prof.sync.runtime.watch.hub import Hooked, Hub

_HOME: dict[Layer, tuple[str, str]] = {
    "warn": ("warn", "WarnLayer"),
    "explicit": ("explicit", "ExplicitLayer"),
    "copies": ("copies", "CopiesLayer"),
    "gpu_trace": ("gpu_trace", "GpuTraceLayer"),
    "dispatch": ("dispatch", "DispatchLayer"),
    "callbacks": ("callbacks", "CallbacksLayer"),
    "shadow": ("shadow", "ShadowLayer"),
}


def make(name: Layer, hub: Hub, *, vendor: str, listener: Any = None) -> Hooked:
    """A layer that is not hooked yet. `listener` hears what the device does, from the layers that know."""
    module, kind = _HOME[name]
    made: Hooked = getattr(import_module(f"{__name__}.{module}"), kind)(hub, vendor=vendor, listener=listener)
    return made
