"""A program without step names of its own leaves a trace that cannot be cut into steps: the recorder names them.

The names are those that torch's own schedule writes, which every reader of traces knows. A mark is opened before
anybody knows whether its step will end; one that did not is renamed in the file, so that the few microseconds between
the last step and the end of the block count for nobody as a step.
"""

from __future__ import annotations

import mmap
from pathlib import Path

_PREFIX = "ProfilerStep#"
# As long as the prefix: a file is changed in place, without being read as JSON or moved.
_UNFINISHED = "UnfinishedOf#"


def step_name(step: int) -> str:
    """The annotation of the `step`th step since arming, counted from 0."""
    return f"{_PREFIX}{step}"


def disown_unfinished(trace: Path, step: int) -> int:
    """Rename `step`'s mark in an uncompressed trace, host and device slices alike; returns how many there were."""
    name = f'"{step_name(step)}"'.encode()
    other = f'"{_UNFINISHED}{step}"'.encode()
    assert len(name) == len(other), "in place"
    renamed = 0
    with trace.open("r+b") as handle, mmap.mmap(handle.fileno(), 0) as view:
        at = view.find(name)
        while at >= 0:
            view[at : at + len(name)] = other
            renamed += 1
            at = view.find(name, at + len(name))
    return renamed
