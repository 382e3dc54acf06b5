"""A backend without torch: writes a small trace and notes what was asked of it."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from pathlib import Path

from dsv4prof.recorder.backends import Remains
from dsv4prof.recorder.sink import RankSink

TRACE = """{"traceEvents": [
  {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": %d, "ts": 1, "dur": 1},
  {"ph": "M", "name": "x"}]}"""


def making(backend: FakeBackend) -> Callable[[], FakeBackend]:
    return lambda: backend


def trace_of(sink: RankSink, window: str = "") -> Path:
    return sink.window(window).trace_path


class Thing:
    """Stands for a profiler: something that can be kept alive."""


class FakeBackend:
    """Writes a small trace and notes what was asked of it."""

    writes_trace = True
    notes: tuple[str, ...] = ()

    def __init__(
        self,
        *,
        export_error: Exception | None = None,
        stop_error: Exception | None = None,
        start_error: Exception | None = None,
        export_waits_for: threading.Event | None = None,
    ) -> None:
        self.calls: list[str] = []
        self.thing: Thing | None = Thing()
        self.export_error = export_error
        self.stop_error = stop_error
        self.start_error = start_error
        self.export_waits_for = export_waits_for
        self.thread = threading.get_native_id()

    def warm_up(self) -> None:
        self.calls.append("warm_up")

    def prepare(self) -> None:
        self.calls.append("prepare")

    def start(self) -> None:
        self.calls.append("start")
        if self.start_error is not None:
            raise self.start_error

    def mark(self, step: int | None) -> None:
        self.calls.append(f"mark {step}")

    def stop(self) -> None:
        self.calls.append("stop")
        if self.stop_error is not None:
            raise self.stop_error

    def export(self, path: Path) -> None:
        self.calls.append("export")
        if self.export_waits_for is not None:
            self.export_waits_for.wait(30)
        path.write_text(TRACE % self.thread)
        if self.export_error is not None:
            raise self.export_error

    def export_files(self, base: Path) -> dict[str, Path]:
        return {}

    def abandon(self) -> None:
        self.calls.append("abandon")

    def release(self, *, keep: bool = False) -> list[Remains]:
        self.calls.append("release")
        thing, self.thing = self.thing, None
        return [Remains("thing", weakref.ref(thing))] if thing is not None else []
