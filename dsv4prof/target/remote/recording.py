"""From an armed profiler to one that is stopped, whatever happens in between, with the files that came of it."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Protocol

import msgspec

from dsv4prof.target.remote.client import Client
from dsv4prof.target.remote.collect import Collector, Key
from dsv4prof.target.remote.facts import ServerFacts, requests_in_progress
from dsv4prof.target.remote.load import Load
from dsv4prof.target.remote.spec import AttachSpec

Progress = Callable[[str], None]
# After an answer that says "saved", a file that is not there will not come; a shared folder may lag.
_LAG_S = 10.0
_NOTHING_SAVED_S = 1.0
_INTERRUPTED_PATIENCE_S = 15.0
_LEAST_STOP_S = 30.0
_POLL_S = 0.5


class Profiler(Protocol):
    """A server's profiler that has been started. `end` stops and disarms it and never raises for a server's answer."""

    def end(self, *, timeout: float) -> bool: ...


class Ended(msgspec.Struct, kw_only=True):
    """What happened between start and stop. `by_server`: the windows that the server had closed by itself.

    `stopped`: it said that our stop ended and saved something. Of the load only what was sent by us counts.
    """

    by_server: frozenset[Key] = frozenset()
    stopped: bool = False
    interrupted: bool = False
    served: int = 0
    waited_s: float = 0.0
    notes: list[str] = []


def record(
    client: Client,
    facts: ServerFacts,
    spec: AttachSpec,
    profiler: Profiler,
    collector: Collector,
    progress: Progress,
) -> Ended:
    """Wait for what was asked, then end the profiler and wait for files; Ctrl-C and SIGTERM only cut the waiting."""
    ended = Ended(notes=[])
    began = time.monotonic()
    load: Load | None = None
    try:
        load = _start_load(client, facts, spec, ended.notes, progress)
        _wait_for_steps(client, facts, spec, collector, sent=load is not None)
    except KeyboardInterrupt:
        ended.interrupted = True
        progress("interrupted")
    finally:
        collector.look()
        ended.by_server = frozenset(key for key, found in collector.found.items() if found.whole)
        ended.waited_s = time.monotonic() - began
        if not collector.complete:
            progress("stopping the server's profiler")
            ended.stopped = profiler.end(timeout=max(spec.patience, _LEAST_STOP_S))
        if load is not None:
            load.stop()
            ended.served = load.served
            if load.refusal and not load.served:
                ended.notes.append(f"the load was refused: {load.refusal}")
    patience = min(spec.patience, _INTERRUPTED_PATIENCE_S) if ended.interrupted else spec.patience
    collector.wait(patience, quiet=min(_LAG_S, patience) if ended.stopped else _NOTHING_SAVED_S)
    if ended.stopped and spec.plan.active is not None and not ended.interrupted:
        ended.notes.append(f"stopped after {ended.waited_s:.0f} s: {spec.plan.active} steps had not passed everywhere")
    return ended


@contextmanager
def terminated_as_interrupt() -> Iterator[None]:
    """SIGTERM becomes KeyboardInterrupt: a command that is told to go must still stop the server's profiler."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(_: int, __: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _start_load(
    client: Client, facts: ServerFacts, spec: AttachSpec, notes: list[str], progress: Progress
) -> Load | None:
    """Requests of our own for a server without any; None when it has some, or is to be left alone."""
    if spec.load == "none":
        progress("waiting for the server's own requests")
        return None
    busy = requests_in_progress(client, facts.kind)
    if busy is None:
        notes.append("no load was sent: the server does not say whether it is idle")
        return None
    if busy > 0 or not facts.generates:
        progress("recording the server's own requests")
        return None
    progress("the server is idle: sending it a few short requests")
    load = Load(client, facts)
    load.start()
    return load


def _wait_for_steps(
    client: Client, facts: ServerFacts, spec: AttachSpec, collector: Collector, *, sent: bool
) -> None:
    if spec.plan.active is not None:
        collector.wait(spec.patience)
        return
    deadline = time.monotonic() + spec.patience
    while not sent and time.monotonic() < deadline:
        # Seconds begin with the first request, or an idle server would be recorded for nothing.
        busy = requests_in_progress(client, facts.kind)
        if busy is None or busy > 0 or collector.look():
            break
        time.sleep(_POLL_S)
    time.sleep(spec.seconds)
