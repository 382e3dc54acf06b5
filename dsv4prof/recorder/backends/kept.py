"""Some destructors crash the process: what is kept must not be destroyed by anybody, not even at the very end.

A list in a module does not do that, because the interpreter empties modules when it exits. A reference that nobody owns
does: it is never given back.
"""

from __future__ import annotations

import ctypes
import threading
from dataclasses import dataclass, field


@dataclass
class _Account:
    """What this process holds on purpose."""

    profilers: int = 0
    held_bytes: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


_account = _Account()


def keep_forever(*things: object) -> None:
    """Give each thing one reference that is never returned. Cannot be undone."""
    for thing in things:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


def count_profiler() -> None:
    """One more profiler is held on purpose."""
    with _account.lock:
        _account.profilers += 1


def count_bytes(held: int) -> None:
    """So many more bytes are held on purpose."""
    with _account.lock:
        _account.held_bytes += held


def held_profilers() -> int:
    """Stopped profilers that this process holds until it ends; the empty one of the warm-up is not counted."""
    return _account.profilers


def held_bytes() -> int:
    """What they hold, bytes, as measured by those who let them be kept."""
    return _account.held_bytes
