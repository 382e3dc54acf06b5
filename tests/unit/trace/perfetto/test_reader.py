""".pftrace files read: our own exactly, torch's as its encoder lays them out, damaged ones as far as they go."""

from __future__ import annotations

import json
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from isal import igzip

from dsv4prof.errors import InputError
from dsv4prof.trace.perfetto.packets import interned, packet
from dsv4prof.trace.perfetto.proto import message, number, text
from dsv4prof.trace.perfetto.reader import PftraceEvents, is_pftrace, read_pftrace
from dsv4prof.trace.perfetto.schema import Annotation, Event, Interned, Kind, Packet, Process, Stage, Thread, Track
from traces import Event as JsonEvent
from traces import flow, kernel, launched_rank, op, x

BASE = 1_790_857_026_000_000_000


def _events(read: PftraceEvents) -> list[JsonEvent]:
    return json.loads(b"[" + b",".join(read.texts()) + b"]", parse_float=Decimal)


def _plain(event: JsonEvent) -> str:
    """Without what says nothing: an empty object of arguments, an integer written as a decimal."""
    kept = {key: value for key, value in event.items() if not (key == "args" and value == {})}
    kept.setdefault("cat", "")
    for key in ("ts", "dur"):
        if key in kept:
            kept[key] = int(Decimal(str(kept[key])) * 1000)
    if event["ph"] in "bne":
        kept["id"] = str(kept["id"]).split(":")[-1]
    if event["ph"] == "C":
        kept["args"] = {series: float(value) for series, value in kept["args"].items()}
    return json.dumps(kept, sort_keys=True, default=float)


def _assert_round_trip(json_path: Path, path: Path) -> None:
    document = json.loads(json_path.read_text(), parse_float=Decimal)
    read = read_pftrace(path.read_bytes())
    assert Counter(map(_plain, _events(read))) == Counter(map(_plain, document.pop("traceEvents")))
    assert json.loads(json.dumps(document, default=float)) == json.loads(json.dumps(read.metadata, default=float))
    assert (read.complete, read.notes) == (True, [])


def test_our_own_files_come_back_exactly(both) -> None:
    async_points = [
        {"ph": ph, "cat": "c", "name": "span", "id": id, "pid": 100, "tid": 100, "ts": ts}
        for ph, id, ts in (("b", 3, 1), ("n", 3, 2), ("e", 3, 5), ("b", "0x7", 2), ("e", "0x7", 4))
    ]
    others = [
        {"ph": "C", "name": "power", "pid": 0, "tid": 0, "ts": 3, "args": {"watts": 300, "clock": 1.5}},
        {"ph": "i", "s": "t", "name": "[memory]", "cat": "cpu_instant_event", "pid": 100, "tid": 100, "ts": 4},
        {"ph": "i", "s": "p", "name": "mark", "cat": "m", "pid": 100, "tid": 100, "ts": 4, "args": {"a": [{"b": 2}]}},
    ]
    slices = [
        x("a", "cpu_op", "0.001", "9.999", shape=[[1, 2], []], n=None, big=2**64 - 1, text="\u20ac \"q\"", neg=-5),
        op("crosses", 5, 10),
        kernel("k", 20, 5, 9),
        *(flow("s", 9, 5), flow("f", 9, 20, pid=0, tid=7)),
        *(flow("s", 9, 5, cat="fwdbwd"), flow("f", 9, 20, cat="fwdbwd")),
        op("bwd", 20, 1),
    ]
    _assert_round_trip(*both([*slices, *async_points, *others], launched_rank()))


@pytest.mark.parametrize(
    "pattern", ["h200_2rank_tp2/after-*", "a100_cuda_sync_alexnet.json.gz", "mi300x_sglang_decode_hipgraph.json.gz"]
)
def test_real_sets_come_back_exactly(shared: Path, tmp_path: Path, write_both, pattern: str) -> None:
    _assert_round_trip(*write_both(sorted((shared / "traces").glob(pattern)), tmp_path))


def _annotation(name: str, field: int, value: Any) -> bytes:
    content = number(field, value) if isinstance(value, int) else text(field, value)
    return message(Event.ANNOTATION, text(Annotation.NAME, name) + content)


def _edge(kind: Kind, at_ns: int, track: int, *parts: bytes, name: int = 0) -> bytes:
    event = number(Event.TYPE, kind) + number(Event.TRACK, track) + (number(Event.NAME_ID, name) if name else b"")
    return packet(
        number(Packet.TIMESTAMP, BASE + at_ns),
        number(Packet.SEQUENCE, 1),
        message(Packet.TRACK_EVENT, event + b"".join(parts)),
    )


def _torch_file() -> bytes:
    """As torch's encoder lays it out: all begins of a kind, then all their ends; GPU work as render stages."""
    process = message(Track.PROCESS, number(Process.PID, 42) + text(Process.NAME, "python"))
    thread = message(Track.THREAD, number(Thread.PID, 42) + number(Thread.TID, 43) + text(Thread.NAME, "main"))
    strings = [(Interned.NAMES, i + 1, name) for i, name in enumerate(("aten::mm", "cudaLaunchKernel", "gemm"))]
    stages = ((1, "Kernel"), (2, "Memcpy"), (100, "stream 07"))
    strings += [(Interned.GPU_STAGES, i, name) for i, name in stages]
    external, cbid = _annotation("External id", Annotation.INT, 5), _annotation("cbid", Annotation.INT, 211)
    launch = message(Event.GPU_CORRELATION, number(1, 77))
    ones = number(2, 1) + number(3, 1)
    dim = message(1, number(1, 8) + ones) + message(2, number(1, 256) + ones)
    extra = message(Stage.EXTRA, text(1, "stream id") + text(2, "7"))
    stage = number(Stage.EVENT_ID, 77) + number(Stage.DURATION, 900) + number(Stage.GPU, 0) + number(Stage.QUEUE, 100)
    return b"".join(
        [
            packet(message(Packet.TRACK, number(Track.UUID, 1) + process)),
            packet(message(Packet.TRACK, number(Track.UUID, 2) + number(Track.PARENT, 1) + thread)),
            *interned(1, strings),
            # Back to back, and the second without a duration: times alone pair these wrongly.
            _edge(Kind.BEGIN, 100, 2, external, name=1),
            _edge(Kind.BEGIN, 200, 2, external, name=1),
            _edge(Kind.BEGIN, 200, 2, external, name=1),
            _edge(Kind.END, 200, 2),
            _edge(Kind.END, 200, 2),
            _edge(Kind.END, 300, 2),
            _edge(Kind.BEGIN, 110, 2, launch, cbid, name=2),
            _edge(Kind.END, 130, 2),
            packet(
                number(Packet.TIMESTAMP, BASE + 500),
                number(Packet.SEQUENCE, 1),
                message(
                    Packet.GPU_STAGE,
                    stage + number(Stage.STAGE, 1) + number(Stage.NAME_ID, 3) + message(Stage.LAUNCH, dim) + extra,
                ),
            ),
        ]
    )


@pytest.mark.parametrize("compressed", [False, True])
def test_a_file_as_torch_writes_it(compressed: bool) -> None:
    data = _torch_file()
    read = read_pftrace(igzip.compress(data) if compressed else data)
    events = _events(read)
    base = read.metadata["baseTimeNanoseconds"]
    assert base == BASE // 10**9 * 10**9
    slices = [event for event in events if event["ph"] == "X"]
    shown = [
        (e["name"], e["cat"], e["pid"], e["tid"], int(e["ts"] * 1000) + base - BASE, int(e["dur"] * 1000))
        for e in slices
    ]
    assert shown == [
        ("aten::mm", "cpu_op", 42, 43, 100, 100),
        ("aten::mm", "cpu_op", 42, 43, 200, 0),
        ("aten::mm", "cpu_op", 42, 43, 200, 100),
        ("cudaLaunchKernel", "cuda_runtime", 42, 43, 110, 20),
        ("gemm", "kernel", 0, 7, 500, 900),
    ]
    assert slices[-1]["args"] == {"grid": [8, 1, 1], "block": [256, 1, 1], "stream": 7, "correlation": 77}
    arrows = [(e["ph"], e["id"], e["pid"], e["tid"], e["cat"]) for e in events if e["ph"] in "stf"]
    assert arrows == [("s", 77, 42, 43, "ac2g"), ("f", 77, 0, 7, "ac2g")]
    described = {(e["name"], e["pid"], e["tid"]): e["args"]["name"] for e in events if e["ph"] == "M"}
    assert described == {("process_name", 42, 0): "python", ("thread_name", 42, 43): "main"}
    assert read.notes == ["4 slices have no category in the file: it was told by their arguments"]


def test_nested_slices_in_an_unsorted_file_close_from_inside() -> None:
    edges = [(Kind.BEGIN, 50), (Kind.BEGIN, 60), (Kind.END, 70), (Kind.END, 90), (Kind.BEGIN, 10), (Kind.END, 20)]
    read = read_pftrace(b"".join(_edge(kind, at, 2) for kind, at in edges))
    assert sorted(int(e["dur"] * 1000) for e in _events(read)) == [10, 10, 40]


def test_a_cut_file_keeps_its_whole_packets(both) -> None:
    _, path = both(launched_rank())
    data = path.read_bytes()
    whole = len(_events(read_pftrace(data)))
    read = read_pftrace(data[:-10])
    assert not read.complete
    assert len(_events(read)) < whole
    assert "file ends early: " in read.notes[0]
    assert f"of {len(data) - 10:,} bytes lost" in read.notes[0]
    assert any("begins of slices have no end" in note for note in read.notes)


def test_a_cut_gzip_is_read_as_far_as_it_goes(both) -> None:
    _, path = both([op(f"op {n}", n, 1, n=n * 7919) for n in range(2000)])
    data = igzip.compress(path.read_bytes())
    read = read_pftrace(data[: len(data) * 9 // 10])
    assert not read.complete
    assert read.notes[0].startswith("file ends early (")
    assert 500 < sum(event["ph"] == "X" for event in _events(read)) < 2000


def test_a_damaged_packet_is_counted(both) -> None:
    _, path = both(launched_rank())
    broken = packet(message(Packet.TRACK_EVENT, b"\x5a\xff\x01"))
    read = read_pftrace(path.read_bytes() + broken)
    assert (read.complete, read.notes[0].split(" packets")[0].split(" of ")[0]) == (True, "1")


@pytest.mark.parametrize(
    "data", [b"", b'{"traceEvents": []}', b"\x0a\x00", b"\x7fELF\x02\x01\x01", b"[1]", b"\n\n\n{}"]
)
def test_what_is_no_perfetto_trace_is_refused(data: bytes) -> None:
    assert not is_pftrace(data[:32])
    with pytest.raises(InputError, match="is not a Perfetto trace"):
        read_pftrace(data, source="x")


def test_a_trace_without_events_is_refused() -> None:
    data = packet(message(Packet.TRACK, number(Track.UUID, 1) + text(Track.NAME, "nothing")))
    assert is_pftrace(data)
    with pytest.raises(InputError, match="no event in it"):
        read_pftrace(data)
