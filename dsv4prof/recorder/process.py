"""A process has one recorder at a time, and the child of a fork has none.

Two profilers in one process crash it. A forked child holds a copy of its parent's recorder, without the threads that
Kineto needs: what the copy saved would take the place of the parent's files, or never end.
"""

from __future__ import annotations

import os
import threading
import time
from typing import Protocol

from dsv4prof.errors import LifetimeError


class Claimant(Protocol):
    @property
    def window(self) -> str | None:
        """The name of the window that records now."""
        ...

    @property
    def owner(self) -> int | None:
        """The `threading.get_ident()` of the thread that it records."""
        ...

    def abandon(self) -> None:
        """Forget everything, and neither save nor touch it: this process is the child of a fork."""
        ...


class _Place:
    """The process's one place for a recorder that may record, and those that only save what they recorded."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.holder: Claimant | None = None
        self.saving: list[Claimant] = []
        self.watches_forks = False
        self.exit_began: float | None = None


_place = _Place()


def claim(recorder: Claimant) -> None:
    """Take the place. Raises LifetimeError when another recorder holds it."""
    with _place.lock:
        if _place.holder is not None:
            raise LifetimeError(
                "another recorder is active in this process", hint="two profilers at once crash; end the first one"
            )
        _place.holder = recorder
        if not _place.watches_forks and hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=_leave_to_parent)
            _place.watches_forks = True


def only_saves(recorder: Claimant) -> None:
    """The recorder will record nothing more: the next one may begin while it saves. Idempotent."""
    with _place.lock:
        if _place.holder is recorder:
            _place.holder = None
            _place.saving.append(recorder)


def yield_claim(recorder: Claimant) -> None:
    """Nothing of `recorder` is left; nothing happens when it claimed nothing."""
    with _place.lock:
        if _place.holder is recorder:
            _place.holder = None
        # By identity: a recorder may define equality.
        _place.saving = [each for each in _place.saving if each is not recorder]


def holder() -> Claimant | None:
    """Who records in this process now, or is about to."""
    return _place.holder


def recorders_of(thread: int) -> list[Claimant]:
    """Those that record a thread, or save what they recorded of it."""
    everybody = [*([_place.holder] if _place.holder is not None else []), *_place.saving]
    return [recorder for recorder in everybody if recorder.owner == thread]


def exit_time_left(budget_s: float) -> float:
    """What is left of the seconds by which the process's exit may be delayed, by everybody together."""
    now = time.monotonic()
    if _place.exit_began is None:
        _place.exit_began = now
    return max(0.0, _place.exit_began + budget_s - now)


def anybody_records() -> bool:
    """Whether a window is open in this process, which a pause would spoil."""
    recorder = _place.holder
    return recorder is not None and recorder.window is not None


def _leave_to_parent() -> None:
    # Another thread may have held the lock in the moment of the fork; it does not exist here and will not let go.
    _place.lock = threading.Lock()
    recorders = [*([_place.holder] if _place.holder is not None else []), *_place.saving]
    _place.holder, _place.saving = None, []
    for recorder in recorders:
        recorder.abandon()
