"""A window may have several sources at once: they begin in one order and end in the other, whatever fails between."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from dsv4prof.errors import OutputError
from dsv4prof.recorder.backends import Backend, Remains
from dsv4prof.recorder.backends.device import DeviceWait
from dsv4prof.recorder.backends.kineto import KinetoBackend
from dsv4prof.recorder.backends.loading import import_torch
from dsv4prof.recorder.backends.memory import AllocatorHistory
from dsv4prof.recorder.backends.nvtx import CaptureRange, NvtxRanges
from dsv4prof.recorder.backends.roctx import RocprofWindow
from dsv4prof.recorder.backends.rpd import RpdTracer
from dsv4prof.recorder.plan import RecordPlan


def make_backend(plan: RecordPlan, *, metadata: dict[str, object] | None = None) -> Backend:
    """The sources of `plan.activities` as one backend. Raises MissingExtraError without torch.

    What profiles operators is innermost: a vendor's profiler is already collecting when the first one begins.
    """
    wait = DeviceWait(import_torch())
    builders: dict[str, Callable[[], Backend]] = {
        "mem": lambda: AllocatorHistory(with_stack=plan.with_stack),
        "rpd": RpdTracer,
        "rocprof": lambda: RocprofWindow(wait=wait),
        "cuda_profiler": lambda: CaptureRange(wait=wait),
        "nvtx": lambda: NvtxRanges(record_shapes=plan.record_shapes, wait=wait),
    }
    sources = [build() for word, build in builders.items() if word in plan.sources]
    if plan.uses_torch_profiler:
        sources.append(KinetoBackend(plan, metadata=metadata, wait=wait))
    return sources[0] if len(sources) == 1 else JoinedBackend(sources, keep=plan.release == "keep")


class JoinedBackend:
    """Sources as one. `keep` says how to release those that were ready when a later one failed."""

    def __init__(self, sources: Sequence[Backend], *, keep: bool = False) -> None:
        self._sources = list(sources)
        self._keep = keep
        self._remains: list[Remains] = []

    @property
    def writes_trace(self) -> bool:
        return any(source.writes_trace for source in self._sources)

    @property
    def notes(self) -> list[str]:
        return list(dict.fromkeys(note for source in self._sources for note in source.notes))

    def warm_up(self) -> None:
        for source in self._sources:
            source.warm_up()

    def prepare(self) -> None:
        with ExitStack() as undo:
            undo.callback(self._release_all, keep=self._keep)
            for source in self._sources:
                source.prepare()
            undo.pop_all()

    def start(self) -> None:
        """All or none: when one fails, those before it are stopped, and all are released."""
        with ExitStack() as undo:
            undo.callback(self._release_all, keep=self._keep)
            for source in self._sources:
                source.start()
                undo.callback(source.stop)
            undo.pop_all()

    def mark(self, step: int | None) -> None:
        for source in self._sources:
            source.mark(step)

    def stop(self) -> None:
        """All, the last one first; raises what went wrong with one of them after all had their turn."""
        with ExitStack() as stack:
            for source in self._sources:
                stack.callback(source.stop)

    def export(self, path: Path) -> None:
        for source in self._sources:
            if source.writes_trace:
                return source.export(path)
        raise OutputError(f"nothing was recorded that could be written to {path.name}")

    def export_files(self, base: Path) -> dict[str, Path]:
        """Every source's files; raises OutputError after all had their turn."""
        files: dict[str, Path] = {}
        failure: OutputError | None = None
        for source in self._sources:
            try:
                files.update(source.export_files(base))
            except OutputError as error:
                failure = failure or error
        if failure is not None:
            raise failure
        return files

    def abandon(self) -> None:
        for source in self._sources:
            source.abandon()

    def release(self, *, keep: bool = False) -> list[Remains]:
        self._release_all(keep=keep)
        remains, self._remains = self._remains, []
        return remains

    def _release_all(self, *, keep: bool) -> None:
        """What remains is reported by `release`, whoever called."""
        with ExitStack() as stack:
            for source in self._sources:
                stack.callback(self._release_one, source, keep)

    def _release_one(self, source: Backend, keep: bool) -> None:
        self._remains += source.release(keep=keep)
