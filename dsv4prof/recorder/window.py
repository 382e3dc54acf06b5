"""One window: a profiler from its preparation to its release, and the files that it leaves.

Preparing, starting and stopping belong to the thread that is recorded. What follows may take seconds and may happen
anywhere: the export, which torch leaves alone once it has stopped, and the release.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

from dsv4prof.errors import Dsv4profError, LifetimeError, OutputError
from dsv4prof.model.session import ClockAnchor, EndedBy, ReleaseProof
from dsv4prof.recorder.backends import Backend
from dsv4prof.recorder.counting import EventCounter
from dsv4prof.recorder.marks import disown_unfinished
from dsv4prof.recorder.release import release_with_proof, resident_bytes
from dsv4prof.recorder.sink import WindowSink, require_folder
from dsv4prof.recorder.termination import deferred_signals

_OTHERS_WORKED = "no operator of the thread that armed the recorder was recorded, only those of other threads"
# Whether other threads worked or nobody did cannot be told apart, and neither trace can be analysed.
_NO_WORK = (
    "no operator was recorded: recording is per thread, and the thread that armed the recorder ran none in the window"
)


class Window:
    """`failure` is what went wrong, if anything; `lack` what makes a saved trace useless. Both are sentences' owners:
    the window never raises after `open`, and whatever failed, `release` may and must follow.
    """

    def __init__(self, backend: Backend, files: WindowSink, *, keep: bool = False) -> None:
        self.name = files.name
        self.failure: Dsv4profError | None = None
        self.lack: str | None = None
        self.proof: ReleaseProof | None = None
        self.saved = threading.Event()
        self._backend = backend
        self._files = files
        self._keep = keep
        self._prepared = False
        self._stopped = False
        self._thread = 0
        self._base_bytes = 0
        self._unfinished: int | None = None
        self._releasing = threading.Lock()

    @property
    def growth_bytes(self) -> int:
        """How much the process has grown since it was smallest in this window: it may free memory of its own."""
        resident = resident_bytes()
        self._base_bytes = min(self._base_bytes, resident)
        return resident - self._base_bytes

    def prepare(self) -> None:
        """Allocate. Idempotent. Raises LifetimeError for a foreign profiler."""
        if not self._prepared:
            self._backend.prepare()
            self._prepared = True

    def open(self, step: int) -> None:
        """Record from now on, on this thread. Raises LifetimeError or RuntimeError."""
        self.prepare()
        self._backend.start()
        self._thread = threading.get_native_id()
        self._base_bytes = resident_bytes()
        self._files.update(
            first_step=step, clock=ClockAnchor(wall_ns=time.time_ns(), monotonic_ns=time.perf_counter_ns())
        )

    def mark(self, step: int | None) -> None:
        """Name the step that begins in the trace; None ends the name of the last one."""
        self._backend.mark(step)

    def close(self, ended_by: EndedBy, steps: int, *, reason: str | None = None, unfinished: int | None = None) -> None:
        """End the recording, on the thread that opened it. `unfinished` is the number of a step that has a name in the
        trace and did not end.
        """
        self._unfinished = unfinished
        grown = self.growth_bytes
        with deferred_signals():
            began = time.perf_counter_ns()
            try:
                self._backend.stop()
                self._stopped = True
            except (Dsv4profError, RuntimeError) as error:
                self.fail(error, "stopped")
            self._note(
                steps=steps,
                ended_by=ended_by,
                reason=reason,
                stop_ns=time.perf_counter_ns() - began,
                growth_bytes=grown,
                notes=list(self._backend.notes),
            )

    def save(self) -> None:
        """Export, compress and note it; on any thread. Sets `saved` however it ends."""
        began = time.perf_counter_ns()
        try:
            if self._stopped:
                self._export()
        except Exception as error:  # noqa: BLE001 - the outermost frame of a thread: nobody else would hear of it
            self.fail(error, "saved")
        finally:
            self._note(export_ns=time.perf_counter_ns() - began, notes=list(self._backend.notes))
            self.saved.set()

    def fail(self, error: Exception, verb: str) -> None:
        """Keep the first failure, as an error that a user can act on."""
        if self.failure is not None:
            return
        self.failure = as_lifetime_error(error, verb)
        self._note(ended_by=EndedBy.ERROR, reason=self.failure.message)

    def release(self, place: str) -> ReleaseProof:
        """Drop the profiler and prove that it is gone, or keep it on purpose. Idempotent; one thread does it."""
        with self._releasing:
            if self.proof is None:
                held = self.growth_bytes if self._keep and self._stopped else 0
                self.proof = release_with_proof(
                    lambda: self._backend.release(keep=self._keep), keep=self._keep, held_bytes=held, place=place
                )
                if self._files.record.first_step is not None:
                    self._note(release=self.proof)
            return self.proof

    def abandon(self) -> None:
        """This process is the child of a fork: nothing is stopped, saved or destroyed here."""
        self._backend.abandon()

    def _export(self) -> None:
        require_folder(self._files.folder)
        if self._backend.writes_trace:
            json_file = self._files.json_path
            try:
                self._backend.export(json_file)
                if self._unfinished is not None:
                    disown_unfinished(json_file, self._unfinished)
                self.lack = self._lack_of(self._files.store_trace(json_file))
            finally:
                json_file.unlink(missing_ok=True)
        files = self._backend.export_files(self._files.base)
        if files:
            self._note(files={kind: Path(path).name for kind, path in files.items()})

    def _lack_of(self, counted: EventCounter) -> str | None:
        if counted.kernels or str(self._thread) in counted.operators:
            return None
        return _OTHERS_WORKED if counted.work else _NO_WORK

    def _note(self, **changes: Any) -> None:
        """A record that cannot be written is a failure like any other."""
        try:
            self._files.update(**changes)
        except OutputError as error:
            self.failure = self.failure or error


def as_lifetime_error(error: Exception, verb: str = "carried on") -> Dsv4profError:
    """Any error of a profiler as one that a user can act on."""
    if isinstance(error, Dsv4profError):
        return error
    kind = OutputError if verb == "saved" else LifetimeError
    words = str(error) or type(error).__name__
    failure = kind(f"the recording could not be {verb}: {words}")
    failure.__cause__ = error
    return failure
