"""Windows between their stop and their release: saved beside the program, freed where nothing records.

Exporting takes seconds and freeing a pause of the whole process. A scheduler that did both in its loop stood still for
25 s (sglang #34942); here the loop pays only for the stop.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from dsv4prof.errors import Dsv4profError
from dsv4prof.model.session import ReleaseProof
from dsv4prof.recorder.process import anybody_records
from dsv4prof.recorder.window import Window

# A program that has gone idle reaches no boundary; its profiler is not held until it wakes up.
_IDLE_S = 1.0


class WindowSaver:
    """All windows of one recording. `on_release` is called after a release, on the thread that made it."""

    def __init__(self, *, on_release: Callable[[], None]) -> None:
        self.windows: list[Window] = []
        self._on_release = on_release
        self._releasing = threading.RLock()
        self._gone = threading.Event()

    @property
    def alive(self) -> int:
        """Profilers that have not been released yet."""
        return sum(window.proof is None for window in self.windows)

    @property
    def has_saved(self) -> bool:
        """A window is saved and not released."""
        return any(window.proof is None and window.saved.is_set() for window in self.windows)

    @property
    def failure(self) -> Dsv4profError | None:
        return next((window.failure for window in self.windows if window.failure is not None), None)

    @property
    def proof(self) -> ReleaseProof | None:
        """The first release that failed, or else the last one."""
        proofs = [window.proof for window in self.windows if window.proof is not None]
        return next((proof for proof in proofs if not (proof.freed or proof.kept)), proofs[-1] if proofs else None)

    def save(self, window: Window) -> None:
        """Save a closed window on a thread of its own; a daemon, because the process's exit waits for it with patience
        and not for ever.
        """
        try:
            threading.Thread(target=self._save, args=(window,), name="dsv4prof-save", daemon=True).start()
        except RuntimeError:
            # Python 3.12 starts no thread while the interpreter ends.
            window.save()

    def wait_saved(self, timeout_s: float | None) -> bool:
        """Until every closed window is saved; False when that takes longer."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        return all(
            window.saved.wait(None if deadline is None else max(0.0, deadline - time.monotonic()))
            for window in list(self.windows)
        )

    def release_saved(self, place: str) -> None:
        """Release every window that is saved; `place` says where the pause fell."""
        with self._releasing:
            for window in self.windows:
                if window.saved.is_set() and window.proof is None:
                    window.release(place)
            self._on_release()

    def abandon(self) -> None:
        """In the child of a fork: the windows are the parent's, and so are its locks' holders."""
        self._gone.set()
        for window in self.windows:
            window.abandon()

    def _save(self, window: Window) -> None:
        window.save()
        while window.proof is None and not self._gone.wait(_IDLE_S):
            if not anybody_records():
                self.release_saved("beside an idle program")
