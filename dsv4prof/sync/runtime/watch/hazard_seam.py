"""Where the hazards are looked for, if a watch is asked to."""

from __future__ import annotations

from typing import Any


def hazard_watch(*, gpu: bool) -> Any:
    """A HazardWatch: `start`, `stop`, `findings()`, `enter(step, region)`, `listener` for the shadow device, and
    `raw_copy_seen` for whoever hears the driver. A program may run for long, so no log is kept to be judged again.
    """
    from importlib import import_module

    return import_module("dsv4prof.sync.runtime.hazards.watch").HazardWatch(gpu=gpu, keep_log=False)
