"""From a stopped recording to its file: ours against torch's own `.json.gz`, in CPU seconds of one run.

    python tests/bench/bench_export.py [EVENTS]

Ours is what a window does after its stop: export to JSON, read it back as JSON, count, compress with isal. It is run
twice: once for its CPU time, and once beside a loop on the main thread that looks at the clock, for the longest stall
that a program would see. The same loop without anything beside it tells what the machine itself does to it.
"""

from __future__ import annotations

import gc
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

from dsv4prof.model.session import EndedBy, RankCoordinates
from dsv4prof.recorder.backends.compose import make_backend
from dsv4prof.recorder.plan import RecordPlan
from dsv4prof.recorder.sink import RankSink
from dsv4prof.recorder.window import Window

EVENTS = 600_000
PLAN = RecordPlan(active=None, with_stack=False, size_limit_mb=None)


def work(events: int) -> None:
    """One event an operator."""
    x = torch.ones(4)
    for _ in range(events):
        x.add_(x)


def stopped_window(folder: Path, events: int) -> tuple[Window, RankSink, float]:
    """A window after its stop, and the stop's CPU seconds."""
    folder.mkdir()
    sink = RankSink(folder, RankCoordinates(rank=0, world_size=1))
    backend = make_backend(PLAN)
    backend.warm_up()
    window = Window(backend, sink.window(""))
    window.open(0)
    work(events)
    return window, sink, cpu_seconds(lambda: window.close(EndedBy.STOP, 1))


def cpu_seconds(call: Callable[[], object]) -> float:
    """Of this process and of a copy that it lets save."""
    began = sum(os.times()[:4])
    call()
    return sum(os.times()[:4]) - began


def longest_stall(until: Callable[[], bool]) -> float:
    """Seconds between two looks at the clock, the longest of all, on the calling thread."""
    longest, last, over = 0.0, time.perf_counter(), False
    while not over:
        # The last gap counts as well: what held the loop up may be what it waited for.
        over = until()
        now = time.perf_counter()
        longest, last = max(longest, now - last), now
    return longest


def torchs_own(folder: Path, events: int) -> tuple[float, int]:
    """CPU seconds and bytes of `export_chrome_trace`, which writes what its name's end asks for."""
    profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])
    with profiler:
        work(events)
    path = folder / "torch.json.gz"
    seconds = cpu_seconds(lambda: profiler.export_chrome_trace(str(path)))
    return seconds, path.stat().st_size


def main() -> None:
    events = int(sys.argv[1]) if len(sys.argv) > 1 else EVENTS
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch:
        window, sink, stop = stopped_window(Path(scratch, "ours"), events)
        ours = cpu_seconds(window.save)
        assert window.failure is None, window.failure
        saved = sink.record
        window.release("after the measurement")

        window, _, _ = stopped_window(Path(scratch, "beside"), events)
        began = time.perf_counter()
        threading.Thread(target=window.save).start()
        stall = longest_stall(window.saved.is_set)
        beside = time.perf_counter() - began
        window.release("after the measurement")
        end = time.perf_counter() + beside
        idle_stall = longest_stall(lambda: time.perf_counter() > end)

        theirs, their_bytes = torchs_own(Path(scratch), events)
    gc.collect()
    print(f"{saved.events:,} events, torch {torch.__version__}")
    print(f"stop                     {stop:7.2f} CPU s   {stop / saved.events * 1e6:6.2f} us/event")
    print(f"ours, stop to file       {ours:7.2f} CPU s   {ours / saved.events * 1e6:6.2f} us/event   "
          f"{saved.trace_bytes / 1e6:6.1f} MB")  # fmt: skip
    print(f"torch's .json.gz         {theirs:7.2f} CPU s   {theirs / saved.events * 1e6:6.2f} us/event   "
          f"{their_bytes / 1e6:6.1f} MB")  # fmt: skip
    print(f"ratio                    {ours / theirs:7.3f}         ({theirs / ours:.1f} times faster)")
    print(f"longest stall of a loop beside ours {stall * 1e3:.1f} ms in {beside:.1f} s, without anything "
          f"{idle_stall * 1e3:.1f} ms")  # fmt: skip


if __name__ == "__main__":
    main()
