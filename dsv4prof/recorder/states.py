"""The one life of a recorder: which move is allowed where, and a sentence for each that is not."""

from __future__ import annotations

import threading
from enum import Enum

from dsv4prof.errors import LifetimeError


class State(Enum):
    """Where a recorder is in its one life."""

    NEW = "new"
    ARMED = "armed"
    RECORDING = "recording"
    EXPORTING = "exporting"
    RELEASED = "released"


_ILLEGAL = {
    ("arm", State.ARMED): "the recorder is armed already",
    ("arm", State.RECORDING): "the recorder is recording already",
    ("arm", State.EXPORTING): "the recorder is exporting; make a new one for the next recording",
    ("arm", State.RELEASED): "the recorder has been released; make a new one for each recording",
    ("step", State.NEW): "the recorder counts no steps before it is armed",
    ("stop", State.NEW): "the recorder is not recording: it was never armed",
    ("stop", State.EXPORTING): "the recorder is not recording any more: it is exporting",
    ("stop", State.RELEASED): "the recorder is not recording any more: it has been released",
}


def require_legal(move: str, state: State) -> None:
    """Raises LifetimeError with the sentence for an illegal move."""
    sentence = _ILLEGAL.get((move, state))
    if sentence is not None:
        raise LifetimeError(sentence, hint=f"state: {state.value}")


def require_owner(move: str, owner: int | None) -> None:
    """Raises LifetimeError off the thread that armed the recorder, whose `get_ident()` is `owner`."""
    if owner is not None and threading.get_ident() != owner:
        raise LifetimeError(
            f"{move} was called on another thread than the one that armed the recorder",
            hint="recording is per thread; from elsewhere call request_stop(), obeyed at the next step",
        )
