"""Packets taken apart: events and tracks as they lie in a file, their strings looked up, nothing put together yet."""

from __future__ import annotations

import struct
from typing import Any

import msgspec

from dsv4prof.trace.perfetto.annotations import AnnotationReader
from dsv4prof.trace.perfetto.proto import fields, signed
from dsv4prof.trace.perfetto.schema import Event, Kind, Process, Stage, Thread, Track
from dsv4prof.trace.perfetto.sequences import SequenceState


class Record(msgspec.Struct, gc=False):
    """A track event. `at_ns` is the packet's time; `args` is JSON text or empty; `launches` are correlations."""

    kind: int
    at_ns: int
    track: int
    name: str
    category: str
    args: bytes
    flows: tuple[int, ...] = ()
    flow_ends: tuple[int, ...] = ()
    launches: tuple[int, ...] = ()
    value: float | int = 0


class Described(msgspec.Struct):
    """A track as its descriptor says; absent numbers are None."""

    uuid: int
    parent: int = 0
    name: str = ""
    process: tuple[int, str] | None = None
    labels: tuple[str, ...] = ()
    process_sort: int | None = None
    thread: tuple[int, int, str] | None = None
    thread_sort: int | None = None
    counter: bool = False


class StageRecord(msgspec.Struct, gc=False):
    """One operation of a GPU, as torch writes it from 2.14 on."""

    at_ns: int
    dur_ns: int
    name: str
    stage: str
    queue: str
    gpu: int
    correlation: int
    args: dict[str, Any]


def track_event(content: bytes, at_ns: int, state: SequenceState) -> Record:
    """Raises BrokenMessageError."""
    record = Record(0, at_ns, state.default_track, "", "", b"")
    annotations: list[bytes] = []
    flows: list[int] = []
    ends: list[int] = []
    for field, value in fields(content):
        if isinstance(value, bytes):
            if field == Event.ANNOTATION:
                annotations.append(value)
            elif field == Event.NAME:
                record.name = value.decode(errors="replace")
            elif field == Event.CATEGORY:
                record.category = record.category or value.decode(errors="replace")
            elif field in (Event.FLOWS, Event.FLOW_ENDS):
                # Packed: eight bytes each.
                own = flows if field == Event.FLOWS else ends
                own += struct.unpack(f"<{len(value) // 8}Q", value[: len(value) // 8 * 8])
            elif field == Event.GPU_CORRELATION:
                record.launches += tuple(each for inner, each in fields(value) if inner == 1 and isinstance(each, int))
        elif field == Event.TYPE:
            record.kind = value
        elif field == Event.TRACK:
            record.track = value
        elif field == Event.NAME_ID:
            record.name = state.names.get(value, "")
        elif field == Event.CATEGORY_IDS:
            record.category = record.category or state.categories.get(value, "")
        elif field in (Event.FLOWS, Event.OLD_FLOWS):
            flows.append(value)
        elif field in (Event.FLOW_ENDS, Event.OLD_FLOW_ENDS):
            ends.append(value)
        elif field == Event.COUNTER:
            record.value = signed(value)
        elif field == Event.COUNTER_DOUBLE:
            record.value = _double(value)
    record.flows, record.flow_ends = tuple(flows), tuple(ends)
    if annotations:
        reader = AnnotationReader(state.annotation_names, state.annotation_strings)
        record.args = msgspec.json.encode(dict(map(reader.pair, annotations)))
    return record


def described(content: bytes) -> Described:
    """Raises BrokenMessageError."""
    track = Described(0)
    for field, value in fields(content):
        if field == Track.UUID and isinstance(value, int):
            track.uuid = value
        elif field == Track.PARENT and isinstance(value, int):
            track.parent = value
        elif field in (Track.NAME, Track.STATIC_NAME) and isinstance(value, bytes):
            track.name = value.decode(errors="replace")
        elif field == Track.COUNTER:
            track.counter = True
        elif field == Track.PROCESS and isinstance(value, bytes):
            _process(track, value)
        elif field == Track.THREAD and isinstance(value, bytes):
            _thread(track, value)
    return track


def gpu_stage(content: bytes, at_ns: int, state: SequenceState) -> StageRecord:
    """Raises BrokenMessageError."""
    record = StageRecord(at_ns, 0, "", "", "", 0, 0, {})
    kernel = ""
    for field, value in fields(content):
        if isinstance(value, bytes):
            if field == Stage.EXTRA:
                name, text = _pair(value)
                record.args[name] = int(text) if _is_number(text) else text
            elif field == Stage.NAME:
                record.name = value.decode(errors="replace")
            elif field == Stage.LAUNCH:
                record.args.update(_launch(value))
        elif field == Stage.EVENT_ID:
            record.correlation = value
        elif field == Stage.DURATION:
            record.dur_ns = value
        elif field == Stage.GPU:
            record.gpu = signed(value)
        elif field == Stage.QUEUE:
            record.queue = state.stages.get(value, "")
        elif field == Stage.STAGE:
            record.stage = state.stages.get(value, "")
        elif field == Stage.NAME_ID:
            record.name = state.names.get(value, "")
        elif field == Stage.KERNEL:
            kernel = state.kernels.get(value, "")
    record.name = record.name or kernel or record.stage
    return record


def gpu_counters(content: bytes, state: SequenceState) -> list[tuple[int, str, float | int]]:
    """(GPU, name, value) of each counter in a sample. Raises BrokenMessageError."""
    gpu: int | None = None
    source = None
    values: list[tuple[int, float | int]] = []
    for field, value in fields(content):
        if field == 2 and isinstance(value, bytes):
            counter = 0
            reading: float | int = 0
            for inner, number in fields(value):
                if not isinstance(number, int):
                    continue
                if inner == 1:
                    counter = number
                else:
                    reading = signed(number) if inner == 2 else _double(number)
            values.append((counter, reading))
        elif field == 3 and isinstance(value, int):
            gpu = value
        elif field == 4 and isinstance(value, int):
            source = state.counters.get(value)
    names = source.names if source is not None else {}
    device = gpu if gpu is not None else source.gpu if source is not None else 0
    return [(device, names.get(counter, f"counter {counter}"), reading) for counter, reading in values]


def is_edge(record: Record) -> bool:
    return record.kind in (Kind.BEGIN, Kind.END)


def _process(track: Described, content: bytes) -> None:
    pid, name, labels = 0, "", []
    for field, value in fields(content):
        if field == Process.PID and isinstance(value, int):
            pid = signed(value)
        elif field == Process.SORT and isinstance(value, int):
            track.process_sort = signed(value)
        elif field == Process.NAME and isinstance(value, bytes):
            name = value.decode(errors="replace")
        elif field == Process.LABELS and isinstance(value, bytes):
            labels.append(value.decode(errors="replace"))
    track.process, track.labels = (pid, name), tuple(labels)


def _thread(track: Described, content: bytes) -> None:
    pid = tid = 0
    name = ""
    for field, value in fields(content):
        if field == Thread.PID and isinstance(value, int):
            pid = signed(value)
        elif field == Thread.TID and isinstance(value, int):
            tid = signed(value)
        elif field == Thread.SORT and isinstance(value, int):
            track.thread_sort = signed(value)
        elif field == Thread.NAME and isinstance(value, bytes):
            name = value.decode(errors="replace")
    track.thread = (pid, tid, name)


def _pair(content: bytes) -> tuple[str, str]:
    texts = {field: value.decode(errors="replace") for field, value in fields(content) if isinstance(value, bytes)}
    return texts.get(1, ""), texts.get(2, "")


def _launch(content: bytes) -> dict[str, list[int]]:
    """The grid and the block of a kernel, under the names that JSON traces use."""
    found: dict[str, list[int]] = {}
    for field, value in fields(content):
        if field in (1, 2) and isinstance(value, bytes):
            sizes = [0, 0, 0]
            for axis, size in fields(value):
                if 1 <= axis <= 3 and isinstance(size, int):
                    sizes[axis - 1] = size
            found["grid" if field == 1 else "block"] = sizes
    return found


def _double(value: int | bytes) -> float:
    return struct.unpack("<d", value.to_bytes(8, "little"))[0] if isinstance(value, int) else 0.0


def _is_number(text: str) -> bool:
    return text.removeprefix("-").isdigit() and len(text) < 19
