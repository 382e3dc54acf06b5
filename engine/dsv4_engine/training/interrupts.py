"""Ctrl-C between two steps: what was learned until then is saved."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType
from typing import Any

_SAID = b"\nstops after this step and saves; Ctrl-C again stops at once\n"


class StopWhenInterrupted:
    """Inside of the context the first SIGINT is only noted; the next one is KeyboardInterrupt, as outside.

    It does nothing in a thread that is not the main one, which gets no signals, and where SIGINT is ignored, as it is
    for a job in a shell's background.
    """

    def __init__(self) -> None:
        self.asked = False
        self._before: Any = None

    def __enter__(self) -> StopWhenInterrupted:
        in_main = threading.current_thread() is threading.main_thread()
        if in_main and signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            self._before = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            signal.default_int_handler(number, frame)
        self.asked = True
        os.write(2, _SAID)  # a print may be what was interrupted
