"""A process has one recorder at a time, and the child of a fork has none.

Two profilers in one process crash it. A forked child holds a copy of its parent's recorder, without the threads that
Kineto needs: what the copy saved would take the place of the parent's files, or never end.
"""

from __future__ import annotations

import os
import threading
from typing import Protocol

from dsv4prof.errors import LifetimeError


class Claimant(Protocol):
    def abandon(self) -> None:
        """Forget everything, and neither save nor touch it: this process is the child of a fork."""
        ...


class _Place:
    """The process's one place for a recorder."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.holder: Claimant | None = None
        self.watches_forks = False


_place = _Place()


def claim(recorder: Claimant) -> None:
    """Raises LifetimeError when another recorder holds the process."""
    with _place.lock:
        if _place.holder is not None:
            raise LifetimeError(
                "another recorder is active in this process", hint="two profilers at once crash; end the first one"
            )
        _place.holder = recorder
        if not _place.watches_forks and hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=_leave_to_parent)
            _place.watches_forks = True


def yield_claim(recorder: Claimant) -> None:
    """Make room for the next recorder; nothing happens when `recorder` holds no claim."""
    with _place.lock:
        if _place.holder is recorder:
            _place.holder = None


def holder() -> Claimant | None:
    """Who records in this process now."""
    return _place.holder


def _leave_to_parent() -> None:
    # Another thread may have held the lock in the moment of the fork; it does not exist here and will not let go.
    _place.lock = threading.Lock()
    recorder, _place.holder = _place.holder, None
    if recorder is not None:
        recorder.abandon()
