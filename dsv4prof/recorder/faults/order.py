"""Moves in the wrong order, twice, or on the wrong thread: torch takes them without a word and crashes later."""

from __future__ import annotations

import gc
import shutil
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from dsv4prof.errors import Dsv4profError, LifetimeError
from dsv4prof.recorder.faults.fault import Expected, Fault
from dsv4prof.recorder.faults.ours import plan, serving
from dsv4prof.recorder.faults.work import TRACE, on_another_thread, profiler, save, work


def _stop_twice_plain(folder: Path) -> None:
    one = profiler()
    one.start()
    work()
    one.stop()
    one.stop()
    save(one, folder / TRACE)


def _stop_twice_ours(folder: Path) -> None:
    from dsv4prof.recorder.standalone import record

    with record(plan(), root=folder) as recorder:
        work()
        recorder.stop()
        recorder.stop()


def _nested_plain(folder: Path) -> None:
    outer, inner = profiler(), profiler()
    with outer:
        work()
        with inner:
            work()
    save(outer, folder / "outer-trace.json")
    save(inner, folder / "inner-trace.json")


def _nested_ours(folder: Path) -> None:
    from dsv4prof.recorder.standalone import record

    with record(plan(), root=folder):
        work()
        with record(plan(), root=folder):
            work()


def _other_thread_plain(folder: Path) -> None:
    one = profiler()
    one.start()
    work()
    on_another_thread(one.stop, lambda: save(one, folder / TRACE))


def _other_thread_ours(folder: Path) -> None:
    """As a server is controlled: its handlers start and stop, and another thread works."""
    with serving(folder) as manager:
        on_another_thread(manager.start)
        manager.step()
        work()
        stopping = threading.Thread(target=manager.stop)
        stopping.start()
        while stopping.is_alive():
            manager.step()
            stopping.join(0.01)


def _handler_raises_plain(folder: Path) -> None:
    from torch.profiler import schedule

    def full_disk(_: Any) -> None:
        raise OSError("the handler could not save")

    one = profiler(schedule=schedule(wait=0, warmup=1, active=1), on_trace_ready=full_disk)
    one.start()
    for _ in range(6):
        work()
        with suppress(OSError):
            one.step()
    with suppress(OSError):
        one.stop()
    save(one, folder / TRACE)


def _handler_raises_ours(folder: Path) -> None:
    """A window cannot be saved, the program goes on, and records again."""
    from dsv4prof.recorder.standalone import record

    failure: Dsv4profError | None = None
    try:
        with record(plan(active=1), root=folder / "lost") as recorder:
            shutil.rmtree(folder / "lost")
            for _ in range(6):
                work()
                recorder.step()
    except Dsv4profError as error:
        failure = error
    with record(plan(), root=folder):
        work()
    if failure is not None:
        raise failure


def _crossed_stops_plain(folder: Path) -> None:
    first, second = profiler(), profiler()
    first.start()
    work()
    first.stop()
    second.start()
    work()
    second.stop()
    first.stop()
    save(first, folder / "first-trace.json")
    save(second, folder / "second-trace.json")


def _crossed_stops_ours(folder: Path) -> None:
    from dsv4prof.recorder.standalone import record

    with record(plan(), root=folder) as first:
        work()
    with record(plan(), root=folder):
        work()
    first.stop()


def _two_starts_plain(folder: Path) -> None:
    together = threading.Barrier(2)

    def one(path: Path) -> None:
        mine = profiler()
        together.wait()
        mine.start()
        work()
        together.wait()
        mine.stop()
        save(mine, path)

    threads = [threading.Thread(target=one, args=(folder / f"{number}-trace.json",)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _two_starts_ours(folder: Path) -> None:
    """Two requests to start at the same time: one is answered, the other refused."""
    refused: list[LifetimeError] = []
    together = threading.Barrier(2)
    with serving(folder) as manager:

        def start() -> None:
            together.wait()
            try:
                manager.start()
            except LifetimeError as error:
                refused.append(error)

        threads = [threading.Thread(target=start) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        manager.step()
        work()
        manager.step()
        manager.stop()
    if refused:
        raise refused[0]


def _dropped_plain(folder: Path) -> None:
    one = profiler()
    one.start()
    work()
    del one
    gc.collect()
    work()


def _dropped_ours(folder: Path) -> None:
    from dsv4prof.recorder.control import ProfilerManager

    one = ProfilerManager(root=folder, plan=plan())
    one.start()
    one.step()
    work()
    del one
    gc.collect()


FAULTS = (
    Fault(
        name="stop-twice",
        sentence="stop twice, then export",
        plain=_stop_twice_plain,
        ours=_stop_twice_ours,
        expected=Expected.TRACE_AND_ERROR,
    ),
    Fault(
        name="nested",
        sentence="enter a profiler inside another, export both",
        plain=_nested_plain,
        ours=_nested_ours,
        plain_traces=2,
        expected=Expected.TRACE_AND_ERROR,
    ),
    Fault(
        name="other-thread",
        sentence="start on one thread, stop and export on another",
        plain=_other_thread_plain,
        ours=_other_thread_ours,
        expected=Expected.TRACE,
    ),
    Fault(
        name="handler-raises",
        sentence="saving fails inside step(), profiling goes on",
        plain=_handler_raises_plain,
        ours=_handler_raises_ours,
        expected=Expected.TRACE_AND_ERROR,
    ),
    Fault(
        name="crossed-stops",
        sentence="stop A again after B was stopped",
        plain=_crossed_stops_plain,
        ours=_crossed_stops_ours,
        expected=Expected.TRACE_AND_ERROR,
        traces=2,
    ),
    Fault(
        name="two-starts",
        sentence="start on two threads at the same time",
        plain=_two_starts_plain,
        ours=_two_starts_ours,
        plain_traces=2,
        expected=Expected.TRACE_AND_ERROR,
    ),
    Fault(
        name="dropped-running",
        sentence="drop the last reference while it runs",
        plain=_dropped_plain,
        ours=_dropped_ours,
        expected=Expected.TRACE,
    ),
)
