"""Once Kineto has run in a process, a forked child of it never exits: a static destructor waits for a thread that only
the parent has.

Python is finished by then and the exit status is known, so the child can go without those destructors.
"""

from __future__ import annotations

import ctypes
import os
import sys


def let_forks_exit() -> None:
    """Have every later fork of this process end without C++ static destructors, with its streams flushed.

    Needs glibc's `on_exit`, because `atexit` is not told the exit status; elsewhere nothing is done. Cannot be undone,
    as a fork hook cannot.
    """
    if not sys.platform.startswith("linux"):
        return
    libc = ctypes.CDLL(None)
    try:
        on_exit, leave, flush = libc.on_exit, libc._exit, libc.fcloseall
    except AttributeError:
        return

    def register() -> None:
        # Last registered, first called; both are C functions, for Python is gone when they run.
        on_exit(leave, None)
        on_exit(flush, None)

    os.register_at_fork(after_in_child=register)
