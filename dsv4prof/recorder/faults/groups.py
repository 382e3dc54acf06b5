"""A process and all that it has started, waited for with a limit and ended together.

Its leader is waited for last: until then nobody else can have the group's number.
"""

from __future__ import annotations

import os
import select
import signal
import time
from contextlib import suppress

_POLL_S = 0.01


class LeftAloneError(Exception):
    """Whoever wanted the result is gone."""


def await_end(pid: int, patience_s: float, *, asked_by: int | None = None) -> tuple[int | None, float]:
    """(exit status, seconds) of the leader of a process group, which is killed whatever happens.

    The status is negative for a signal, and None when it did not end within `patience_s`. Raises LeftAloneError when
    the descriptor `asked_by` reports anything meanwhile, which only its end can.
    """
    began = time.monotonic()
    try:
        while not (ended := _has_ended(pid)) and time.monotonic() - began < patience_s:
            if asked_by is None:
                time.sleep(_POLL_S)
            elif select.select([asked_by], [], [], _POLL_S)[0]:
                raise LeftAloneError
        seconds = time.monotonic() - began
    finally:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return (status if ended else None), seconds


def _has_ended(pid: int) -> bool:
    """Without taking its status."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
