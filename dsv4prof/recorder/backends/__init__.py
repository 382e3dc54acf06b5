"""What can record: each backend is one source of a window's events with one lifetime, driven by the manager."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True)
class Remains:
    """Something that must be gone after release, watched without holding it."""

    label: str
    ref: weakref.ref[object]

    @property
    def alive(self) -> bool:
        return self.ref() is not None


class Backend(Protocol):
    """One window's source. `prepare`, `start`, `mark` and `stop` belong to the recorded thread, in this order;
    `export`, `export_files` and `release` may come from any thread once `stop` has returned. `release` may follow any
    method, and again itself.
    """

    @property
    def writes_trace(self) -> bool:
        """Whether there is a trace of ours to export; False where a vendor's profiler writes its own."""
        ...

    @property
    def notes(self) -> Sequence[str]:
        """Sentences for the window's record, about what this source could not do as planned."""
        ...

    def warm_up(self) -> None:
        """Pay what only a process's first recording costs, outside the window. Raises LifetimeError where this source
        cannot record here.
        """
        ...

    def prepare(self) -> None:
        """Allocate, without recording yet. Raises LifetimeError when somebody else records in this process."""
        ...

    def start(self) -> None: ...

    def mark(self, step: int | None) -> None:
        """While recording: end the open step's annotation, and open that of `step` unless it is None."""
        ...

    def stop(self) -> None:
        """End the open mark and the recording, in bounded time even when the device hangs."""
        ...

    def export(self, path: Path) -> None:
        """Write a whole, uncompressed Chrome JSON trace to `path`, or raise OutputError."""
        ...

    def export_files(self, base: Path) -> dict[str, Path]:
        """Write what does not belong into a trace beside it, each file under `base` and a suffix of its own; returns
        the paths by kind. Raises OutputError.
        """
        ...

    def abandon(self) -> None:
        """In the child of a fork: forget what was recorded without stopping or destroying it."""
        ...

    def release(self, *, keep: bool = False) -> list[Remains]:
        """Drop every reference; what is returned has to be dead after the caller's collection. With `keep`, what a
        destructor could crash on is never destroyed in this process, and what is returned stays alive on purpose.
        """
        ...
