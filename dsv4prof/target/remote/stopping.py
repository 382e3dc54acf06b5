"""End a server's profiler. The server answers when its traces are saved, which takes minutes on a real one.

Whoever gives up before and clears the folder away takes the server down: its scheduler saves into a folder that is not
there. So the wait is long, told, and cut short only by the user, and its end says what is known.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from enum import Enum
from typing import Protocol

from dsv4prof.target.remote.client import Client, NoAnswerError
from dsv4prof.target.remote.interrupts import Interrupts

# Saving a big window takes a server minutes, in which it answers nothing.
SAVING_S = 600.0
_POLL_S = 0.25
# After Ctrl-C while it waits for the answer; a second one leaves at once.
_AFTER_INTERRUPT_S = 15.0
# A file that is whole while the stop is unanswered: the answer is on its way.
_GRACE_S = 2.0
_ALIVE_EVERY_S = 2.0
_ALIVE_TIMEOUT_S = 3.0
_SECOND_TRY_S = 0.5


class Stop(Enum):
    """What is known of a server's profiler after it was told to stop."""

    SAVED = "it stopped, and saved what it had"
    NOTHING = "there was nothing to stop"
    UNANSWERED = "no answer: it may still be saving"
    GONE = "the server is gone"


class Profiler(Protocol):
    """A server's profiler. `everyone`: an answer to a stop speaks for all ranks, not for the first one alone.
    `lingers`: it goes on recording when all that was asked for is there.

    `end` stops and disarms it within `timeout` seconds and never raises for a server's answer.
    """

    everyone: bool
    lingers: bool

    def end(self, *, timeout: float) -> Stop: ...


class Watch:
    """Whether a server is still there, asked every few seconds at most."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._asked = time.monotonic()
        self.gone = False

    def look(self) -> bool:
        """Whether it is gone. One that is slow is not."""
        if not self.gone and time.monotonic() - self._asked >= _ALIVE_EVERY_S:
            self.gone = is_gone(self._client)
            self._asked = time.monotonic()
        return self.gone


def is_gone(client: Client) -> bool:
    """Whether nobody listens any more, twice in a row."""
    if not _refused(client):
        return False
    time.sleep(_SECOND_TRY_S)
    return _refused(client)


def _refused(client: Client) -> bool:
    try:
        client.get("/model_info", timeout=_ALIVE_TIMEOUT_S)
    except NoAnswerError as error:
        return not error.slow
    return False


def stop_bounded(
    profiler: Profiler,
    client: Client,
    limit_s: float,
    interrupts: Interrupts,
    progress: Callable[[str], None],
    done: Callable[[], bool] = lambda: False,
) -> Stop:
    """Tell it to stop and wait for the answer for `limit_s`, less after an interrupt, or until `done`.

    The request is on its way then, whether it is waited for or not.
    """
    answers: list[Stop] = []
    thread = threading.Thread(
        target=lambda: answers.append(profiler.end(timeout=limit_s)), name="dsv4prof-stop", daemon=True
    )
    thread.start()
    deadline, seen = time.monotonic() + limit_s, interrupts.count
    finished = cut = False
    while thread.is_alive() and time.monotonic() < deadline:
        thread.join(_POLL_S)
        if interrupts.count > seen:
            if cut:
                break
            seen, cut = interrupts.count, True
            deadline = min(deadline, time.monotonic() + _AFTER_INTERRUPT_S)
            progress(f"interrupted: waiting {_AFTER_INTERRUPT_S:.0f} s more for what it saves; again: not at all")
        if not finished and thread.is_alive() and done():
            finished, deadline = True, min(deadline, time.monotonic() + _GRACE_S)
    answer = answers[0] if answers else Stop.UNANSWERED
    # A connection that broke is not yet a server that is gone.
    if answer is Stop.GONE and not is_gone(client):
        return Stop.UNANSWERED
    return answer
