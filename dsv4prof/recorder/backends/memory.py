"""Who allocated what, and when: the GPU allocator's own history of the window, for torch's memory viewer.

torch forgets the history when it is switched off, so the snapshot is taken at the stop, and pickled afterwards beside
the program. The functions are torch's private ones, as torch's own documentation of memory snapshots uses them.
"""

from __future__ import annotations

import pickle
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from dsv4prof.errors import LifetimeError, OutputError
from dsv4prof.recorder.atomic import atomic_path
from dsv4prof.recorder.backends import Remains
from dsv4prof.recorder.backends.loading import import_torch, require_gpu
from dsv4prof.recorder.backends.silent import SilentSource

SUFFIX = ".memory.pickle"
# Older entries give way to newer ones. An entry with its Python stack is about 1 to 3 kB in the file.
MAX_ENTRIES = 100_000


class AllocatorHistory(SilentSource):
    """The history of every allocation and free of the window, at most `MAX_ENTRIES`."""

    def __init__(self, *, with_stack: bool = True) -> None:
        super().__init__()
        self._torch = import_torch()
        self._with_stack = with_stack
        self._memory: Any = None
        self._snapshot: Any = None
        self._recording = False

    def warm_up(self) -> None:
        self.prepare()

    def prepare(self) -> None:
        """Raises LifetimeError without a GPU, without torch's functions, or while somebody else keeps a history."""
        require_gpu(self._torch, "allocator snapshots")
        memory = self._torch.cuda.memory
        for name in ("_record_memory_history", "_snapshot"):
            if not hasattr(memory, name):
                raise LifetimeError(
                    f"this torch has no torch.cuda.memory.{name}, which allocator snapshots need",
                    hint="leave mem out of the activities",
                )
        enabled = getattr(self._torch._C, "_cuda_isHistoryEnabled", None)
        if enabled is not None and enabled():
            raise LifetimeError(
                "the allocator's history is already being recorded in this process, and our stop would end it",
                hint="switch it off (torch.cuda.memory._record_memory_history(None)), or leave mem out",
            )
        self._memory = memory

    def start(self) -> None:
        # Before the call: one that fails half-way may have switched the history on.
        self._recording = True
        how = {"stacks": "python"} if self._with_stack else {"context": None}
        with ExitStack() as stack:
            stack.callback(self._switch_off)
            self._memory._record_memory_history(max_entries=MAX_ENTRIES, **how)
            stack.pop_all()

    def stop(self) -> None:
        if not self._recording:
            return
        try:
            self._snapshot = self._memory._snapshot()
        except RuntimeError as error:
            self.notes.append(f"torch gave no allocator snapshot: {error}")
        finally:
            self._switch_off()

    def export_files(self, base: Path) -> dict[str, Path]:
        if self._snapshot is None:
            return {}
        target = base.with_name(base.name + SUFFIX)
        try:
            # Unbuffered: pickle hands out pieces of 64 KiB, and each write lets other threads run.
            with atomic_path(target) as part, part.open("wb", buffering=0) as handle:
                pickle.dump(self._snapshot, handle, protocol=4)
        except (OSError, pickle.PicklingError) as error:
            raise OutputError(f"the allocator snapshot could not be saved: {error}") from error
        return {"memory": target}

    def abandon(self) -> None:
        self._recording = False

    def release(self, *, keep: bool = False) -> list[Remains]:
        if self._recording:
            self._switch_off()
        self._snapshot = None
        return []

    def _switch_off(self) -> None:
        self._recording = False
        self._memory._record_memory_history(enabled=None)
