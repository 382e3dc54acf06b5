"""A thread that never asks the device to finish: it looks whether anything moves, and writes stacks when nothing is."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from dsv4prof.faultrecord.layout import Cell
from dsv4prof.faultrecord.ring import RingWriter
from dsv4prof.sync.runtime.faultwatch.progress import Progress

STACKS_SUFFIX = ".stacks.txt"
HUNG_STATUS = 3
_LOOK_S = 0.05


def stacks_signal() -> signal.Signals | None:
    """The signal that has a rank write its stacks, by C code that needs no lock of Python's."""
    return signal.SIGUSR2 if hasattr(signal, "SIGUSR2") else None


class Watchdog:
    """Looks every 50 ms. A step in which nothing was launched and nothing completed for `timeout_s` is a hang.

    Then the stacks of all threads go to `stacks`, and after `grace_s` more, in which whoever started this process can
    end all ranks together, the process ends with status 3 and without any clean-up, which could wait for the device.
    With `timeout_s` None only the progress is followed.
    """

    def __init__(
        self,
        ring: RingWriter,
        progress: Progress,
        *,
        in_step: Callable[[], bool],
        stacks: Path,
        timeout_s: float | None,
        grace_s: float = 15.0,
    ) -> None:
        self._ring = ring
        self._progress = progress
        self._in_step = in_step
        self._stacks = stacks
        self._timeout_s = timeout_s
        self._grace_s = grace_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="dsv4prof-fault-watchdog", daemon=True)

    def start(self) -> None:
        self._file = self._stacks.open("w")
        number = stacks_signal()
        if number is not None and threading.current_thread() is threading.main_thread():
            faulthandler.register(number, file=self._file, all_threads=True, chain=False)
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._thread.join(5.0)
        number = stacks_signal()
        if number is not None:
            faulthandler.unregister(number)
        empty = self._file.tell() == 0 and self._stacks.exists() and self._stacks.stat().st_size == 0
        self._file.close()
        if empty:
            self._stacks.unlink(missing_ok=True)

    def _watch(self) -> None:
        seen, since = -1, time.monotonic()
        while not self._stop.wait(_LOOK_S):
            self._ring.cell(Cell.ALIVE_NS, time.monotonic_ns())
            moved = self._progress.poll()
            if moved or self._ring.last != seen or not self._in_step():
                seen, since = self._ring.last, time.monotonic()
            elif self._timeout_s is not None and time.monotonic() - since > self._timeout_s:
                self._hung()
                return

    def _hung(self) -> None:
        self._ring.cell(Cell.STALLED_NS, time.monotonic_ns())
        faulthandler.dump_traceback(file=self._file, all_threads=True)
        self._file.flush()
        print(f"dsv4prof: nothing moved for {self._timeout_s:g} s in a step; the stacks are in {self._stacks}",
              file=sys.stderr, flush=True)  # fmt: skip
        if not self._stop.wait(self._grace_s):
            os._exit(HUNG_STATUS)
