"""What each address of the control server does and answers, without a socket.

Every answer is a JSON object. `success` speaks of what was asked: a stop that ended a recording which saved nothing
succeeded in nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from dsv4prof.errors import Dsv4profError, InputError, LifetimeError, OutputError, UsageError
from dsv4prof.recorder.plan import RecordPlan
from dsv4prof.recorder.request import parse_start
from dsv4prof.recorder.sink import installed_versions

if TYPE_CHECKING:
    from dsv4prof.recorder.status import ManagerStatus, SessionResult

_STATUS_OF: tuple[tuple[type[Dsv4profError], int], ...] = (
    (UsageError, 400),
    (InputError, 400),
    (LifetimeError, 409),
    (OutputError, 507),
)


class Controlled(Protocol):
    """The manager, as far as its clients see it; every method may be called from any thread."""

    def start(
        self,
        plan: RecordPlan | None = None,
        *,
        root: Any = None,
        name: str | None = None,
        session: Any = None,
    ) -> ManagerStatus: ...

    def stop(self, *, wait_s: float = 30.0) -> SessionResult: ...

    def status(self) -> ManagerStatus: ...


@dataclass(frozen=True)
class Reply:
    """An HTTP status and the JSON object beside it."""

    status: int
    payload: dict[str, Any]
    headers: dict[str, str] = field(default_factory=dict)


class Routes:
    """The addresses of one manager. `plan` is what requests leave unsaid, `stop_wait_s` how long a stop may wait."""

    def __init__(self, manager: Controlled, *, plan: RecordPlan | None, stop_wait_s: float) -> None:
        self._manager = manager
        self._plan = plan
        self._stop_wait_s = stop_wait_s
        # GET starts and stops as well, because SGLang's does and its clients' scripts use it.
        self._routes: dict[str, tuple[tuple[str, ...], Callable[[bytes], Reply]]] = {
            "/start_profile": (("GET", "POST"), self._start),
            "/stop_profile": (("GET", "POST"), self._stop),
            "/profile_status": (("GET",), self._status),
            "/health": (("GET",), self._health),
        }

    def answer(self, method: str, path: str, query: str, read_body: Callable[[], bytes]) -> Reply:
        """Never raises because of what a client sent or of the manager's state; `read_body` may."""
        route = self._routes.get(path)
        if route is None:
            return refusal(404, f"there is nothing at {path}", "one of " + ", ".join(self._routes))
        methods, act = route
        if method not in methods:
            wrong = refusal(405, f"{path} takes {' or '.join(methods)}")
            return Reply(wrong.status, wrong.payload, {"Allow": ", ".join(methods)})
        if query:
            return refusal(400, "the address takes no query", "send the fields as a JSON body")
        body = read_body()
        try:
            return act(body)
        except Dsv4profError as error:
            status = next((status for kind, status in _STATUS_OF if isinstance(error, kind)), 500)
            return refusal(status, error.message, error.hint)

    def _start(self, body: bytes) -> Reply:
        request = parse_start(body, self._plan)
        status = self._manager.start(request.plan, root=request.root, name=request.name, session=request.session)
        where = f"the session {status.session}" if status.session else "the recording"
        message = f"{where} begins when the program reaches its next step"
        return Reply(200, {"success": True, "message": message, "notes": request.notes, "status": status})

    def _stop(self, body: bytes) -> Reply:
        result = self._manager.stop(wait_s=self._stop_wait_s)
        if result.outcome == "recording":
            message = f"the program reached no step in {self._stop_wait_s:g} s; the recording ends at its next one"
            return Reply(202, {"success": True, "message": message, "result": result})
        message = f"the session {result.session} is {result.outcome}"
        if result.reason:
            message += f": {result.reason}"
        # A trace without work in it was saved, and is a failure all the same.
        useful = bool(result.files) and result.outcome != "failed"
        return Reply(200, {"success": useful, "message": message, "result": result})

    def _status(self, body: bytes) -> Reply:
        return Reply(200, {**_self(), **msgspec.to_builtins(self._manager.status())})

    def _health(self, body: bytes) -> Reply:
        return Reply(200, {**_self(), "success": True})


def refusal(status: int, message: str, hint: str | None = None) -> Reply:
    payload: dict[str, Any] = {"success": False, "message": message}
    return Reply(status, payload | ({"hint": hint} if hint else {}))


def _self() -> dict[str, Any]:
    """By what a client recognises this server."""
    return {"server": "dsv4prof", "version": installed_versions().get("dsv4prof"), "pid": os.getpid()}
