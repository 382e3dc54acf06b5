"""Small traces for tests, written as a profiler would: an event a line, times in microseconds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from isal import igzip

from dsv4prof.model.trace import MergedTrace
from dsv4prof.trace.load import load_rank
from dsv4prof.trace.memory import RankMemory
from dsv4prof.trace.merge import merge
from dsv4prof.trace.merging import Merge
from dsv4prof.trace.part import parts_of

BASE_NS = 1_790_857_026_000_000_000
Event = dict[str, Any]


def x(name: str, cat: str, ts: float | str, dur: float | str, pid: Any = 100, tid: Any = 100, **args: Any) -> Event:
    """A complete event; `args` are its arguments."""
    event: Event = {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur}
    return {**event, "args": args} if args else event


def op(name: str, ts: float, dur: float, **kw: Any) -> Event:
    return x(name, "cpu_op", ts, dur, **kw)


def note(name: str, ts: float, dur: float, **kw: Any) -> Event:
    return x(name, "user_annotation", ts, dur, **kw)


def frame(name: str, ts: float, dur: float, **kw: Any) -> Event:
    return x(name, "python_function", ts, dur, **kw)


def call(name: str, ts: float, dur: float, correlation: int = 0, **kw: Any) -> Event:
    return x(name, "cuda_runtime", ts, dur, correlation=correlation, **kw)


def kernel(
    name: str, ts: float, dur: float, correlation: int = 0, pid: Any = 0, tid: Any = 7, cat: str = "kernel"
) -> Event:
    return x(name, cat, ts, dur, pid=pid, tid=tid, correlation=correlation)


def flow(ph: str, number: Any, ts: float, pid: Any = 100, tid: Any = 100, cat: str = "ac2g") -> Event:
    event: Event = {"ph": ph, "id": number, "cat": cat, "name": cat, "pid": pid, "tid": tid, "ts": ts}
    return {**event, "bp": "e"} if ph == "f" else event


def meta(kind: str, pid: Any, tid: Any = 0, /, **args: Any) -> Event:
    return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "ts": 0, "args": args}


def document(events: list[Event], *, rank: int | None = None, world: int | None = None, **top: Any) -> dict[str, Any]:
    info = {} if rank is None else {"distributedInfo": {"backend": "gloo", "rank": rank, "world_size": world}}
    return {"schemaVersion": 1, "baseTimeNanoseconds": BASE_NS, **info, **top, "traceEvents": events}


def write(path: Path, content: dict[str, Any] | list[Event] | bytes) -> Path:
    """A file of that content; compressed when its name ends in .gz."""
    data = content if isinstance(content, bytes) else json.dumps(content, indent=1).encode()
    path.write_bytes(igzip.compress(data) if path.name.endswith(".gz") else data)
    return path


def merged(folder: Path, *ranks: list[Event]) -> MergedTrace:
    """The ranks' events, written, loaded and merged."""
    files = [
        write(folder / f"rank{rank}.json", document(events, rank=rank, world=len(ranks)))
        for rank, events in enumerate(ranks)
    ]
    return merge([load_rank(file) for file in files])


def write_chrome_json(trace: MergedTrace, path: Path) -> Path:
    """The merged trace as a file."""
    with Merge() as merging:
        plan, _ = merging.look([RankMemory(rank.trace) for rank in trace.ranks])
        merging.write(plan, path)
    return path


def merge_again(path: Path, target: Path) -> Path:
    """A merged file merged again."""
    with Merge() as merging:
        plan, _ = merging.look(parts_of(path))
        merging.write(plan, target)
    return target


def launched_rank(pid: int = 1000, start: float = 100) -> list[Event]:
    """An operator that launches a kernel on GPU 0, with names, labels and an arrow, as Kineto writes it."""
    return [
        meta("process_name", pid, name="python"),
        meta("process_labels", pid, labels="CPU"),
        meta("process_name", 0, name="python"),
        meta("process_labels", 0, labels="GPU 0"),
        meta("process_name", 1, name="python"),
        meta("process_labels", 1, labels="GPU 1"),
        meta("thread_name", 0, 7, name="stream 7 "),
        op("aten::mm", start, 10, pid=pid, tid=pid),
        call("hipLaunchKernel", start + 2, 4, 1, pid=pid, tid=pid),
        flow("s", 1, start + 2, pid=pid, tid=pid),
        flow("f", 1, start + 10, pid=0, tid=7),
        kernel("gemm", start + 10, 20, 1),
    ]
