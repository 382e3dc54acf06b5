"""Where a recording that was asked for goes, and where in the program it begins."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec

from dsv4prof.errors import LifetimeError, UsageError
from dsv4prof.model.session import RankCoordinates
from dsv4prof.recorder.agreement import SESSION_VARIABLE, agree_on_session, meet_on_session
from dsv4prof.recorder.backends.loading import is_preloaded, preload_profiler
from dsv4prof.recorder.plan import RecordPlan
from dsv4prof.recorder.sessions import create_session, join_session
from dsv4prof.recorder.sink import RankSink
from dsv4prof.recorder.status import FORKED, ControlledSession
from dsv4prof.recorder.wording import recorded_command

_LONGEST_NAME = 200


def counted_from(plan: RecordPlan, step: int) -> RecordPlan:
    """`start_step` counts the program's steps; a recorder counts its own, from the program's `step` on."""
    if plan.start_step is None:
        return plan
    ahead = max(0, plan.start_step - step - plan.warmup)
    return msgspec.structs.replace(plan, start_step=None, wait=ahead)


def require_name(name: str) -> str:
    """Raises UsageError for a name that no folder can have."""
    if len(name) > _LONGEST_NAME:
        raise UsageError(
            f"a session's name of {len(name)} characters is too long for a folder's",
            hint=f"give {_LONGEST_NAME} characters or fewer",
        )
    return name


def new_session(plan: RecordPlan, me: RankCoordinates, root: Path, name: str) -> Path:
    """A new session's folder under `root`. Raises OutputError where it cannot be written, UsageError for its name."""
    return create_session(
        root,
        name=require_name(name),
        world_size=me.world_size or 1,
        command=recorded_command(sys.argv),
        plan=msgspec.to_builtins(plan),
    )


class Starter:
    """Makes the sessions of one manager, one at a time, in the process that made it."""

    def __init__(self, me: RankCoordinates, root: Path, name: str) -> None:
        self._me = me
        self._root = root
        self._name = name
        self._process = os.getpid()
        self._making = threading.Lock()

    @property
    def here(self) -> bool:
        """Whether this process made the manager, and is no fork of that one."""
        return os.getpid() == self._process

    def make(
        self, plan: RecordPlan, root: Path | str | None, name: str | None, joined: Path | str | None
    ) -> ControlledSession:
        """A session with its folder, ready to be written to. `joined` is a folder that all ranks name.

        Raises LifetimeError in a forked child or while another one is made, UsageError or OutputError for what cannot
        be.
        """
        if not self.here:
            raise LifetimeError(FORKED, hint="make a manager in the child, and start it with multiprocessing's spawn")
        if not self._making.acquire(blocking=False):
            raise LifetimeError("a recording is already being started", hint="status tells how it goes")
        try:
            folder = self._folder(plan, root, name, joined)
            made = ControlledSession(plan, folder, RankSink(folder, self._me))
            made.sink.preflight(plan.window_names())
            return made
        finally:
            self._making.release()

    def get_ready(self, session: ControlledSession, *, wait: bool) -> None:
        """Have torch's imports done, which nobody's step should wait for; with `wait` this thread does."""
        if wait or is_preloaded():
            _get_ready(session)
        else:
            beside(lambda: _get_ready(session))

    def settle(self, patience_s: float) -> None:
        """Wait, in bounded time, for one that is being made."""
        if self._making.acquire(timeout=patience_s):
            self._making.release()

    def _folder(self, plan: RecordPlan, root: Path | str | None, name: str | None, joined: Path | str | None) -> Path:
        if joined is not None:
            return join_session(
                Path(joined).absolute(),
                world_size=self._me.world_size or 1,
                command=recorded_command(sys.argv),
                plan=msgspec.to_builtins(plan),
            )
        home = Path(root).absolute() if root is not None else self._root

        def make() -> Path:
            return new_session(plan, self._me, home, name or self._name)

        if os.environ.get(SESSION_VARIABLE):
            return agree_on_session(self._me, home, make)
        return meet_on_session(self._me, home, make)


def beside(call: Callable[[], None]) -> None:
    """Make a call on a thread of its own, which keeps no process alive."""
    threading.Thread(target=call, name="dsv4prof-start", daemon=True).start()


def _get_ready(session: ControlledSession) -> None:
    preload_profiler()
    session.ready = True
