"""Start and stop a recording over HTTP, with SGLang's addresses, from a process that serves something else meanwhile.

A control server must not become the fault that it looks for: whatever a client sends or fails to send, the program goes
on, the answer is JSON, and closing is bounded. Nothing is recorded on its threads:
it hands requests to the manager, which carries them out where the work is done.
"""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from types import TracebackType

from dsv4prof.errors import LifetimeError, UsageError
from dsv4prof.recorder.control_requests import Controlled, Routes
from dsv4prof.recorder.control_sockets import HttpSockets
from dsv4prof.recorder.plan import RecordPlan

LOOPBACK = "127.0.0.1"
_JOIN_S = 2.0


class ControlServer:
    """Serves `manager` from `start` to `close`, on a free port of the loopback unless told otherwise.

    `plan` is what a request leaves unsaid, its steps apart; `stop_wait_s` is how long a stop waits for the saved trace
    before it answers 202. On the loopback a request of a browser page is refused (by `Origin`, `Sec-Fetch-Site` and
    `Host`), because any page could send one; naming another host serves whoever can reach it, without a password.
    In the child of a fork it counts as closed, and the port stays the parent's.
    """

    def __init__(
        self,
        manager: Controlled,
        host: str = LOOPBACK,
        port: int = 0,
        *,
        plan: RecordPlan | None = None,
        stop_wait_s: float = 30.0,
    ) -> None:
        self._host = host
        self._port = port
        self._routes = Routes(manager, plan=plan, stop_wait_s=stop_wait_s)
        self._sockets: HttpSockets | None = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """`http://127.0.0.1:40123`. Raises LifetimeError before `start` and after `close`."""
        if self._sockets is None:
            raise LifetimeError("the control server is not running", hint="call start() first")
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self._sockets.port}"

    def start(self) -> ControlServer:
        """Bind and serve. Raises UsageError for a host or port that cannot be used, LifetimeError when it runs."""
        if self._sockets is not None:
            raise LifetimeError("the control server is running already", hint=self.url)
        try:
            sockets = HttpSockets((self._host, self._port), self._routes)
        except (OSError, OverflowError, UnicodeError) as error:
            words = getattr(error, "strerror", None) or error
            raise UsageError(
                f"port {self._port} on {self._host!r} cannot be used: {words}", hint="name another port, or 0 for any"
            ) from error
        self._sockets = sockets
        self._thread = threading.Thread(target=sockets.serve, name="dsv4prof-control", daemon=True)
        self._thread.start()
        atexit.register(self.close)
        _close_in_children(self)
        return self

    def close(self) -> None:
        """Stop serving, from any thread; idempotent. Connections are cut; a request that waits for a stop ends with
        that stop, which is bounded, and its thread with it.
        """
        sockets, self._sockets = self._sockets, None
        thread, self._thread = self._thread, None
        if sockets is None:
            return
        atexit.unregister(self.close)
        sockets.close(_JOIN_S)
        if thread is not None and thread is not threading.current_thread():
            thread.join(_JOIN_S)

    def _disown(self) -> None:
        """For the child of a fork: its copies of the sockets go, without a word to the other side."""
        sockets, self._sockets, self._thread = self._sockets, None, None
        if sockets is not None:
            sockets.disown()

    def __enter__(self) -> ControlServer:
        return self if self._sockets is not None else self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


_servers: weakref.WeakSet[ControlServer] = weakref.WeakSet()
_watched: list[int] = []


def _close_in_children(server: ControlServer) -> None:
    """A fork hook cannot be taken back, so there is one for all servers."""
    _servers.add(server)
    if not _watched and hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_disown_all)
        _watched.append(os.getpid())


def _disown_all() -> None:
    for server in list(_servers):
        server._disown()
