"""The recorder inside a served engine: it starts and stops between two steps, on every rank before the same one."""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from pathlib import Path
from typing import Any

import msgspec

from dsv4prof.errors import Dsv4profError, LifetimeError
from dsv4prof.recorder.control import ProfilerManager
from dsv4prof.recorder.control_requests import Controlled, Routes
from dsv4prof.recorder.plan import RecordPlan
from dsv4prof.recorder.sessions import create_session
from dsv4prof.recorder.starting import require_name
from dsv4prof.recorder.status import ManagerStatus, SessionResult
from dsv4prof.recorder.wording import recorded_command, warn
from dsv4prof.target.hooks import ProfilingHooks

_STOP_WAIT_S = 60.0
_ANSWER_S = 60.0


class StepFollower:
    """Between an engine and a manager on the engine's thread: hooks tell it of beginnings, the server of ends.

    It is the `followed` of the engine's hooks, and the observer of its steps.
    """

    by_phase = False

    def __init__(self, manager: ProfilerManager, hooks: ProfilingHooks) -> None:
        self._manager = manager
        self.recording = False
        hooks.followed = self

    def begin_step(self, stage: object) -> None:
        self._manager.begin_step(stage)
        self.recording = self._manager.status().state == "recording"

    def end_step(self) -> None:
        return None

    def after_step(self) -> None:
        self._manager.end_step()

    def poll(self) -> bool:
        """Whether something still has to be stopped or saved, which goes on only while somebody looks."""
        self._manager.poll()
        status = self._manager.status()
        return status.state in ("armed", "recording") or status.saving > 0

    def end(self) -> None:
        self._manager.close()


class Message(msgspec.Struct, frozen=True):
    """From rank 0 to the manager of every rank: start `plan` into the session's folder, or stop when there is none."""

    number: int
    plan: RecordPlan | None = None
    session: str | None = None


Answered = Callable[[int, Dsv4profError | None], None]


class Hearing:
    """One rank's end of the messages, on its engine's thread. `answered` is told what came of each."""

    def __init__(self, manager: ProfilerManager, answered: Answered = lambda number, error: None) -> None:
        self._manager, self._answered = manager, answered

    def hear(self, data: bytes) -> None:
        """Never raises because of the recorder: a rank that stopped for it would leave the others waiting."""
        message = msgspec.json.decode(data, type=Message)
        try:
            if message.plan is None:
                self._manager.stop(wait_s=0)
            else:
                self._manager.start(message.plan, session=message.session)
        except Dsv4profError as error:
            warn(error.message)
            self._answered(message.number, error)
        else:
            self._answered(message.number, None)


class RankedManager:
    """The managers of all ranks as one, for rank 0's clients; its methods wait for the engine's next step boundary.

    `send` carries a message to every rank's Hearing; rank 0's own has to tell `answered`.
    """

    def __init__(
        self, manager: ProfilerManager, send: Callable[[bytes], None], *, root: Path, name: str, world: int
    ) -> None:
        self._manager, self._send = manager, send
        self._root, self._name, self._world = root, name, world
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._waiting: dict[int, Future[None]] = {}

    def start(
        self,
        plan: RecordPlan | None = None,
        *,
        root: Any = None,
        name: str | None = None,
        session: Any = None,
    ) -> ManagerStatus:
        """As ProfilerManager.start, on all ranks before the same step."""
        with self._lock:
            if self._manager.status().state != "idle":
                raise LifetimeError("a recording is already under way", hint="stop it, or wait for its end")
            chosen = plan or self._manager.plan
            folder = session or create_session(
                self._root if root is None else Path(root).absolute(),
                name=require_name(name or self._name),
                world_size=self._world,
                command=recorded_command(sys.argv),
                plan=msgspec.to_builtins(chosen),
            )
            self._manager.warm_up()
            self._tell(chosen, str(folder))
            return self._manager.status()

    def stop(self, *, wait_s: float = 30.0) -> SessionResult:
        """As ProfilerManager.stop; what the result says is rank 0's part."""
        with self._lock:
            if self._manager.status().state in ("idle", "pending"):
                return self._manager.stop(wait_s=wait_s)
            self._tell(None, None)
        self._manager.wait(wait_s)
        last = self._manager.status().last
        if last is None:
            raise LifetimeError("the recording has not been stopped yet", hint="/profile_status tells how it goes")
        return last

    def status(self) -> ManagerStatus:
        return self._manager.status()

    def answered(self, number: int, error: Dsv4profError | None) -> None:
        """What rank 0's own manager made of a message."""
        waiting = self._waiting.get(number)
        if waiting is None:
            return
        if error is None:
            waiting.set_result(None)
        else:
            waiting.set_exception(error)

    def _tell(self, plan: RecordPlan | None, session: str | None) -> None:
        number = next(self._numbers)
        waiting = self._waiting[number] = Future()
        try:
            self._send(msgspec.json.encode(Message(number, plan, session)))
            waiting.result(_ANSWER_S)
        except FutureTimeoutError:
            why = f"the engine reached no step in {_ANSWER_S:g} s"
            raise LifetimeError(why, hint="it obeys at its next one") from None
        finally:
            del self._waiting[number]


class Recording:
    """`/start_profile`, `/stop_profile` and `/profile_status` of a server, as the control server answers them."""

    def __init__(self, manager: Controlled, plan: RecordPlan) -> None:
        self._routes = Routes(manager, plan=plan, stop_wait_s=_STOP_WAIT_S)

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, dict[str, Any]]:
        reply = self._routes.answer(method, path, "", lambda: body)
        return reply.status, msgspec.to_builtins(reply.payload)
