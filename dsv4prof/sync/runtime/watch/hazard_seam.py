"""Where the hazards are looked for, if a watch is asked to."""

from __future__ import annotations

from typing import Any


def hazard_watch(*, gpu: bool) -> Any:
    """A HazardWatch: `start`, `stop`, `findings()`, `listener` for the shadow device, and `raw_copy_seen` for whoever
    hears the driver.
    """
    from importlib import import_module

    return import_module("dsv4prof.sync.runtime.hazards.watch").HazardWatch(gpu=gpu)
