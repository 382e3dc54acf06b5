"""Where the hazards are looked for, if a watch is asked to."""

from __future__ import annotations

from typing import Any


def hazard_watch(*, gpu: bool) -> Any:
    """A HazardWatch: `start`, `stop`, `findings() -> list[Finding]`, and `listener` for the shadow device."""
    from importlib import import_module

    return import_module("dsv4prof.sync.runtime.hazards").HazardWatch(gpu=gpu)
