"""A program that ends, or is ended, while it records."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from dsv4prof.recorder.faults.fault import Expected, Fault, Program
from dsv4prof.recorder.faults.ours import plan, serving
from dsv4prof.recorder.faults.work import TRACE, profiler, save, work

_EXIT_STATUS = 7
_TRACES = 5
_EVERY_S = 0.01


def _exit_plain(folder: Path) -> None:
    # Kept by its module as a program's own would be: it is not dropped when this function returns.
    globals()["_running"] = one = profiler(with_stack=True)
    one.start()
    work()


def _exit_ours(folder: Path) -> None:
    from dsv4prof.recorder.control import ProfilerManager

    globals()["_running"] = one = ProfilerManager(root=folder, plan=plan(with_stack=True))
    one.start()
    one.step()
    work()


def _sys_exit() -> None:
    sys.exit(_EXIT_STATUS)


def _raise() -> None:
    raise ValueError("the program has failed")


def _terminate() -> None:
    _kill(signal.SIGTERM)


def _interrupt() -> None:
    # A background shell lets its children ignore SIGINT; a user's program is not started so.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _kill(signal.SIGINT)


def _kill(number: int) -> None:
    os.kill(os.getpid(), number)
    time.sleep(30)


def _plain(end: Callable[[], None]) -> Program:
    """As torch's own examples are written: export behind the block."""

    def program(folder: Path) -> None:
        with profiler() as one:
            work()
            end()
        save(one, folder / TRACE)

    return program


def _ours(end: Callable[[], None]) -> Program:
    def program(folder: Path) -> None:
        from dsv4prof.recorder.standalone import record

        with record(plan(), root=folder):
            work()
            end()

    return program


def _signal_handler_plain(folder: Path) -> None:
    running: list[Any] = []
    saved = 0

    def toggle() -> None:
        nonlocal saved
        if not running:
            running.append(profiler())
            running[0].start()
            return
        one = running.pop()
        one.stop()
        save(one, folder / f"{saved}-trace.json")
        saved += 1

    with _signals(toggle):
        while saved < _TRACES:
            work(1)


def _signal_handler_ours(folder: Path) -> None:
    with serving(folder) as manager, _signals(manager.request_toggle):
        while len(list(folder.glob("*/rank0.trace*"))) < _TRACES:
            work(1)
            manager.step()


@contextmanager
def _signals(handle: Callable[[], None]) -> Iterator[None]:
    """Call `handle` for signals that come wherever the program is, the next one a while after the last was handled."""

    def handler(number: int, frame: FrameType | None) -> None:
        handle()
        signal.setitimer(signal.ITIMER_REAL, _EVERY_S)

    signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, _EVERY_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _ending(name: str, sentence: str, end: Callable[[], None], *endings: int) -> Fault:
    return Fault(
        name=name,
        sentence=sentence,
        plain=_plain(end),
        ours=_ours(end),
        expected=Expected.TRACE,
        endings=endings,
    )


FAULTS = (
    Fault(
        name="exit-recording",
        sentence="the program ends while it records",
        plain=_exit_plain,
        ours=_exit_ours,
        expected=Expected.TRACE,
    ),
    _ending("sys-exit", "sys.exit() while recording", _sys_exit, _EXIT_STATUS),
    _ending("exception", "an exception while recording", _raise, 1),
    _ending("sigterm", "SIGTERM while recording", _terminate, -signal.SIGTERM, 128 + signal.SIGTERM),
    # From Python 3.12 on the status is 1 where the process is a fork that os._exit ends.
    _ending("sigint", "Ctrl-C while recording", _interrupt, -signal.SIGINT, 1, 130),
    Fault(
        name="signal-handler",
        sentence="start and stop in a Python signal handler",
        plain=_signal_handler_plain,
        ours=_signal_handler_ours,
        expected=Expected.TRACE,
        traces=_TRACES,
        operators=1,
    ),
)
