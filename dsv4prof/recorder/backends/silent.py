"""Most sources write no trace of ours and hold nothing: what they do not do is written here, once."""

from __future__ import annotations

from pathlib import Path

from dsv4prof.errors import OutputError
from dsv4prof.recorder.backends import Remains


class SilentSource:
    """A Backend that does nothing. Subclasses replace what they do."""

    writes_trace = False

    def __init__(self) -> None:
        self.notes: list[str] = []

    def warm_up(self) -> None: ...

    def prepare(self) -> None: ...

    def start(self) -> None: ...

    def mark(self, step: int | None) -> None: ...

    def stop(self) -> None: ...

    def export(self, path: Path) -> None:
        raise OutputError(f"nothing was recorded that could be written to {path.name}")

    def export_files(self, base: Path) -> dict[str, Path]:
        return {}

    def abandon(self) -> None: ...

    def release(self, *, keep: bool = False) -> list[Remains]:
        return []
