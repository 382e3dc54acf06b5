"""What can record: each backend is one source of events with one lifetime, driven by the manager."""

from __future__ import annotations

import weakref
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
    """Start and stop happen on one thread, in the order of these methods; `release` may follow any of them."""

    def warm_up(self) -> None:
        """Pay what only a process's first recording costs, outside the window."""
        ...

    def prepare(self) -> None:
        """Allocate, without recording yet. Raises LifetimeError when somebody else records in this process."""
        ...

    def start(self) -> None: ...

    def mark(self, step: int | None) -> None:
        """While recording: end the open step's annotation, and open that of `step` unless it is None."""
        ...

    def stop(self) -> None:
        """End the open mark and the recording."""
        ...

    def export(self, path: Path) -> None:
        """Write an uncompressed Chrome JSON trace. A file that is missing, empty or no JSON raises OutputError."""
        ...

    def abandon(self) -> None:
        """In the child of a fork: forget what was recorded without stopping or destroying it."""
        ...

    def release(self) -> list[Remains]:
        """Drop every reference; what is returned has to be dead after the caller's collection."""
        ...
