"""Watching a running program for hazards, on a device or on shadow tensors."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from dsv4prof.errors import LifetimeError
from dsv4prof.model.finding import Finding
from dsv4prof.sync.runtime.calls import DeviceListener
from dsv4prof.sync.runtime.hazards import plans
from dsv4prof.sync.runtime.hazards.findings import findings_of
from dsv4prof.sync.runtime.hazards.hazard import Hazard
from dsv4prof.sync.runtime.hazards.log import Log, save
from dsv4prof.sync.runtime.hazards.raw_copies import raw_copies_watched
from dsv4prof.sync.runtime.hazards.tracker import HazardTracker

KEEP_ENV = "DSV4PROF_HAZARDS"
"""Names the file that a watched process leaves its run in."""


class HazardWatch:
    """Between `start` and `stop`, hears what the program does with its device.

    gpu: with a device the watch feeds itself, by a dispatch mode on the thread that starts it and wrapped streams and
    events. Without one, a shadow device is given `listener`, and tells everything. One watch at a time in a process.
    """

    def __init__(self, *, gpu: bool = True, keep_log: bool = True) -> None:
        self._gpu = gpu
        keep_log = keep_log or bool(os.environ.get(KEEP_ENV))
        self.tracker = HazardTracker(inner_of=_itself if gpu else _inner_of, keep_log=keep_log)
        self._open: ExitStack | None = None

    @property
    def on_gpu(self) -> bool:
        """Whether the watch feeds itself from a device."""
        return self._gpu

    @property
    def listener(self) -> DeviceListener:
        return self.tracker

    def start(self) -> None:
        """Raises LifetimeError where it has been started."""
        if self._open is not None:
            raise LifetimeError("the hazard watch is started already", hint="stop it first")
        with ExitStack() as opening:
            opening.enter_context(plans.watched_by(self.tracker.contracts, self.tracker))
            if self._gpu:
                opening.enter_context(raw_copies_watched(self.tracker))
                from dsv4prof.sync.runtime.hazards.gpu_feed import gpu_feed

                opening.enter_context(gpu_feed(self.tracker))
            self._open = opening.pop_all()

    def stop(self) -> None:
        """Everything is as it was before; what was found stays."""
        if self._open is not None:
            opened, self._open = self._open, None
            opened.close()
            self._keep()

    def __enter__(self) -> HazardWatch:
        self.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    def raw_copy_seen(self, target: int, source: int, nbytes: int, stream: int) -> None:
        """For whoever hears of every copy from the driver: those that torch does not know of are told."""
        self.tracker.raw_copy_seen(target, source, nbytes, stream)

    def enter(self, *, step: int | None = None, region: str = "") -> None:
        """The program is in this step and region from now on."""
        self.tracker.enter(step=step, region=region)

    def hazards(self) -> list[Hazard]:
        return self.tracker.hazards()

    def findings(self) -> list[Finding]:
        return findings_of(self.hazards())

    def log(self, *, command: str = "") -> Log:
        """What happened, to be judged again without some of its waits."""
        return self.tracker.log(command=command)

    def _keep(self) -> None:
        """Where `dsv4prof hazards -o FILE -- CMD` started this process, leave the run for `explain`."""
        wanted = os.environ.get(KEEP_ENV)
        if wanted:
            try:
                self.save(free_name(Path(wanted)), command=" ".join(sys.argv))
            except OSError as error:
                print(f"dsv4prof: the run was not kept: {error}", file=sys.stderr)

    def save(self, path: Path, *, command: str = "") -> None:
        save(self.log(command=command), path)


def free_name(wanted: Path) -> Path:
    """The name, or with this process's number before its endings where another process has taken it."""
    if not wanted.exists():
        return wanted
    stem, dot, endings = wanted.name.partition(".")
    return wanted.with_name(f"{stem}.{os.getpid()}{dot}{endings}")


def _itself(tensor: Any) -> Any:
    return tensor


def _inner_of(tensor: Any) -> Any:
    """The host tensor inside a shadow."""
    from dsv4prof.sync.runtime.shadow.tensor import ShadowTensor

    return tensor.inner if isinstance(tensor, ShadowTensor) else tensor
