"""`with FaultWatch(...)`: from here to the end of the block, whatever ends this process leaves a record of its last
launches.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from dsv4prof.errors import MissingExtraError
from dsv4prof.faultrecord.layout import SUFFIX, Cell, Kind
from dsv4prof.faultrecord.metadata import check_lengths, words_of
from dsv4prof.faultrecord.ring import RingWriter
from dsv4prof.sync.runtime.faultwatch.buffers import BufferTable
from dsv4prof.sync.runtime.faultwatch.kernels import watched_kernels
from dsv4prof.sync.runtime.faultwatch.operators import LaunchNotes, LaunchState, operator_mode
from dsv4prof.sync.runtime.faultwatch.progress import DeviceProgress, HostProgress, LateProgress, Progress
from dsv4prof.sync.runtime.faultwatch.watchdog import STACKS_SUFFIX, Watchdog

_MOST_NOTES = 100
# With one of these every launch waits for its work.
_BLOCKING = ("CUDA_LAUNCH_BLOCKING", "HIP_LAUNCH_BLOCKING", "AMD_SERIALIZE_KERNEL")


class FaultWatch:
    """Records the launches of the thread that enters it into `folder/rank{rank}.faultring`, or one of another
    `name`.

    On a CUDA or HIP device completion is followed by events: on the device that is current when one is first used, or
    the one of this number; None means that all work is the host's. `every` is how many launches lie between two
    markers. `timeout_s` is when a step that does not move counts as hung, None never; `grace_s` later the process ends
    itself.
    Raises MissingExtraError without torch and OutputError where the file cannot be made.
    """

    def __init__(
        self,
        folder: Path,
        *,
        rank: int = 0,
        name: str | None = None,
        world_size: int = 1,
        timeout_s: float | None = None,
        grace_s: float = 15.0,
        every: int = 32,
        device: int | Literal["current"] | None = "current",
        facts: Mapping[str, Any] | None = None,
    ) -> None:
        name = name or f"rank{rank}"
        self.path = folder / f"{name}{SUFFIX}"
        self._stacks = folder / f"{name}{STACKS_SUFFIX}"
        self._rank, self._world_size = rank, world_size
        self._timeout_s, self._grace_s = timeout_s, grace_s
        self._every = every
        self._device = device
        self._facts = dict(facts or {})
        self._state = LaunchState()
        self._depth = 0
        self._steps = 0
        self._noted = 0
        self._stack = ExitStack()

    def __enter__(self) -> FaultWatch:
        try:
            import torch
        except ImportError as error:
            raise MissingExtraError("torch", "engine", purpose="the fault watch") from error
        with ExitStack() as stack:
            self._ring = RingWriter(self.path, facts=self._all_facts(torch))
            stack.push(self._close_ring)
            progress = self._progress = self._made_progress()
            buffers = BufferTable(self._ring, step=lambda: self._state.step)
            stack.callback(setattr, buffers, "open", False)
            notes = LaunchNotes(self._ring, buffers, progress, self._state)
            watchdog = Watchdog(
                self._ring,
                progress,
                in_step=lambda: self._depth > 0,
                stacks=self._stacks,
                timeout_s=self._timeout_s,
                grace_s=self._grace_s,
            )
            watchdog.start()
            stack.callback(watchdog.close)
            for words in stack.enter_context(watched_kernels(self._ring, notes, self._state)):
                self.note(f"not watched: {words}")
            stack.enter_context(operator_mode(self._ring, notes))
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None and not isinstance(error, SystemExit | KeyboardInterrupt):
            self._ring.cell(Cell.DEVICE_ERROR, self._ring.name(f"{type(error).__name__}: {error}".splitlines()[0]))
        self._stack.__exit__(kind, error, traceback)

    def _close_ring(self, kind: object, error: BaseException | None, traceback: object) -> None:
        self._ring.close(ended=error is None)

    def _made_progress(self) -> Progress:
        if self._device is None:
            return HostProgress()
        if self._device == "current":
            return LateProgress(self._ring, every=self._every)
        return DeviceProgress(self._ring, device=self._device, every=self._every)

    def _all_facts(self, torch: Any) -> dict[str, Any]:
        built = "amd" if torch.version.hip else "nvidia" if torch.version.cuda else "cpu"
        vendor = "cpu" if self._device is None else built
        return {
            "rank": self._rank,
            "world_size": self._world_size,
            "host": socket.gethostname(),
            "vendor": vendor,
            "device": "cpu" if vendor == "cpu" else self._device,
            "torch": torch.__version__,
            "argv": list(sys.argv),
            "python": sys.version.split()[0],
            "working_directory": str(Path.cwd()),
            "markers_every": self._every,
            "blocking": any(os.environ.get(name, "0") not in ("", "0") for name in _BLOCKING),
            "timeout_s": self._timeout_s,
            "triton": "triton" in sys.modules,
            **self._facts,
        }

    def step(self, index: int, *, kind: str = "", requests: int = 0, rows: int = 0) -> AbstractContextManager[object]:
        """The block is a step."""
        words = " ".join(filter(None, (kind, f"requests={requests}", f"rows={rows}")))
        return _Part(self, Kind.STEP, words, index)

    def phase(self, name: str) -> AbstractContextManager[object]:
        """The block is a phase of a step."""
        return _Part(self, Kind.PHASE, name, None)

    def span(self, name: str) -> AbstractContextManager[object]:
        """The block is a named part of a phase."""
        return _Span(self, name)

    def note(self, text: str) -> None:
        """Write a sentence into the record."""
        self._ring.launch(Kind.NOTE, step=self._state.step, phase=self._state.phase, kernel=self._ring.name(text))

    def check_lengths(
        self, lengths: Mapping[str, Sequence[int]], *, running: int | None = None, padded: int | None = None
    ) -> list[str]:
        """Judge numbers that the host has of this step (context lengths, offsets): what is wrong, in sentences, which
        the record keeps as well. Give host values only: nothing here may wait for a device.
        """
        found = check_lengths(lengths, step=self._state.step, running=running, padded=padded)
        words = [words_of(each) for each in found]
        for each in words[: max(0, _MOST_NOTES - self._noted)]:
            self._noted += 1
            self.note(f"metadata: {each}")
        return words

    def begin(self, kind: Kind, name: str, index: int | None) -> tuple[int, int]:
        """Enter a step or phase; what was before it."""
        before = (self._state.step, self._state.phase)
        # Before the first launch of a part is the last chance to hear that all of the one before is complete.
        self._progress.poll()
        number = self._ring.name(name)
        if kind is Kind.STEP:
            self._state.step = index if index is not None else self._steps
            self._steps += 1
            self._depth += 1
            self._ring.cell(Cell.STEP, self._steps)
        else:
            self._state.phase = number
            self._ring.cell(Cell.PHASE, number)
        self._ring.launch(kind, step=self._state.step, phase=self._state.phase, kernel=number)
        return before

    def end(self, kind: Kind, name: str, before: tuple[int, int]) -> None:
        """Leave it again."""
        over = Kind.STEP_END if kind is Kind.STEP else Kind.PHASE_END
        number = self._ring.launch(over, step=self._state.step, phase=self._state.phase, kernel=self._ring.name(name))
        self._progress.boundary(number)
        if kind is Kind.STEP:
            self._depth -= 1
            self._ring.cell(Cell.STEPS_DONE, self._ring.read_cell(Cell.STEPS_DONE) + 1)
        self._state.step, self._state.phase = before

    def enter_span(self, name: str) -> int:
        before = self._state.span
        self._state.span = self._ring.name(name)
        return before

    def leave_span(self, before: int) -> None:
        self._state.span = before


class _Part:
    __slots__ = ("_before", "_index", "_kind", "_name", "_watch")

    def __init__(self, watch: FaultWatch, kind: Kind, name: str, index: int | None) -> None:
        self._watch, self._kind, self._name, self._index = watch, kind, name, index
        self._before = (0, 0)

    def __enter__(self) -> None:
        self._before = self._watch.begin(self._kind, self._name, self._index)

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        # A step that an exception leaves has not ended: the record says where it broke off.
        if error is None:
            self._watch.end(self._kind, self._name, self._before)


class _Span:
    __slots__ = ("_before", "_name", "_watch")

    def __init__(self, watch: FaultWatch, name: str) -> None:
        self._watch, self._name = watch, name
        self._before = 0

    def __enter__(self) -> None:
        self._before = self._watch.enter_span(self._name)

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        if error is None:
            self._watch.leave_span(self._before)
