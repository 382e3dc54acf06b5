"""Read what a process left, whole or torn, alive or dead: a fault record in the words of a report."""

from __future__ import annotations

import json
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from dsv4prof.errors import InputError
from dsv4prof.faultrecord import layout
from dsv4prof.faultrecord.layout import BUFFER, CELL, LAUNCH, STREAM, TURN, Cell, Kind

_HINT = "give a *.faultring file, or the session of a run with --fault-watch"


class Touch(msgspec.Struct, frozen=True):
    """Memory that a launch was given: [address, address + nbytes), what it is there, and whether it is written."""

    address: int
    nbytes: int
    what: str
    written: bool

    @property
    def end(self) -> int:
        return self.address + self.nbytes


class Launch(msgspec.Struct, frozen=True):
    """One record. `more` counts touches that had no room; `graph` is the id of the graph that was captured or replayed.

    `time_ns` is the process's monotonic clock.
    """

    number: int
    time_ns: int
    step: int
    kind: Kind
    phase: str
    span: str
    operator: str
    kernel: str
    stream: int
    thread: int
    graph: int
    touches: tuple[Touch, ...]
    more: int = 0

    @property
    def name(self) -> str:
        """What was launched, as a person would call it."""
        if self.kind is Kind.GRAPH:
            return f"replay of graph {self.kernel or self.graph}"
        return self.kernel or self.operator or self.kind.name.lower()


class Buffer(msgspec.Struct, frozen=True):
    """A storage that the watch saw. `freed` is 0 while it lives; `made_here` is false for one that was there before."""

    address: int
    nbytes: int
    made: int
    freed: int
    step: int
    what: str
    operator: str
    made_here: bool
    stream: int
    freed_ns: int

    @property
    def end(self) -> int:
        return self.address + self.nbytes


class StreamProgress(msgspec.Struct, frozen=True):
    """How far the device is known to be: `marked` and `done` are sequence numbers of launches."""

    stream: int
    marked: int
    done: int


class FaultRecord(msgspec.Struct, frozen=True, dict=True):
    """All that one rank left. `launches` are in order and without the torn ones, which `torn` counts; `missing_bytes`
    were cut off its file.
    """

    path: Path
    facts: dict[str, Any]
    cells: dict[Cell, int]
    streams: tuple[StreamProgress, ...]
    launches: tuple[Launch, ...]
    captured: tuple[Launch, ...]
    buffers: tuple[Buffer, ...]
    torn: int
    device_error: str
    missing_bytes: int = 0

    @property
    def rank(self) -> int | None:
        rank = self.facts.get("rank")
        return rank if isinstance(rank, int) else None

    @property
    def ended(self) -> bool:
        return self.cells[Cell.ENDED] == 1

    @property
    def follows_device(self) -> bool:
        """Whether completion was asked of the device."""
        return self.cells[Cell.TRACKED] == 1

    @cached_property
    def done(self) -> dict[int, int]:
        """By stream, the last launch known to be complete."""
        return {each.stream: each.done for each in self.streams}

    @cached_property
    def marked(self) -> dict[int, int]:
        return {each.stream: each.marked for each in self.streams}

    @property
    def last(self) -> Launch | None:
        """The last launch of all."""
        return next((each for each in reversed(self.launches) if each.kind.launches), None)

    def wall_ns(self, time_ns: int) -> int:
        """A time of the record on the wall clock."""
        return int(self.facts.get("wall_ns", 0)) + time_ns - int(self.facts.get("monotonic_ns", 0))


def is_fault_record(path: Path) -> bool:
    """Whether the file begins as one."""
    try:
        with path.open("rb") as file:
            return file.read(len(layout.MAGIC)) == layout.MAGIC
    except OSError:
        return False


def read_fault_record(path: Path) -> FaultRecord:
    """The record in `path`, or what is there of one that was cut short.

    Raises InputError for what is none, is cut before its names, or is of another version.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}", hint=_HINT) from error
    if len(data) < layout.NAMES_AT or data[: len(layout.MAGIC)] != layout.MAGIC:
        raise InputError(f"{path} is no fault record", hint=_HINT)
    _, version, facts_size, names_size, buffers, captured, launches, buffer_size, launch_size = (
        layout.HEADER.unpack_from(data)
    )
    if version == layout.VERSION and (buffer_size, launch_size) != (BUFFER.size, LAUNCH.size):
        raise InputError(
            f"{path} is a fault record with a damaged header", hint="the messages in the logs may still tell"
        )
    if version != layout.VERSION:
        raise InputError(
            f"{path} is a fault record of version {version}, and this reads version {layout.VERSION}",
            hint="read it with the dsv4prof that wrote it",
        )
    names = _Names(data[layout.NAMES_AT : layout.NAMES_AT + names_size])
    buffers_at = layout.NAMES_AT + names_size
    captured_at = buffers_at + buffers * BUFFER.size
    launches_at = captured_at + captured * LAUNCH.size
    cells = {cell: int(CELL.unpack_from(data, layout.cell_at(cell))[0]) for cell in Cell}
    ordinary, torn = _launches(data, launches_at, launches, names, in_order=True)
    of_graphs, torn_too = _launches(data, captured_at, captured, names, in_order=False)
    return FaultRecord(
        path=path,
        facts=_facts(data[layout.FACTS_AT : layout.FACTS_AT + facts_size]),
        cells=cells,
        streams=_streams(data),
        launches=ordinary,
        captured=of_graphs,
        buffers=_buffers(data, buffers_at, buffers, names),
        torn=torn + torn_too,
        missing_bytes=max(0, launches_at + launches * LAUNCH.size - len(data)),
        device_error=names[cells[Cell.DEVICE_ERROR]],
    )


def read_progress(path: Path) -> tuple[dict[Cell, int], tuple[StreamProgress, ...]] | None:
    """The cells of a record that is being written, and its streams: a small read; None where there is no record yet."""
    try:
        with path.open("rb") as file:
            data = file.read(layout.NAMES_AT)
    except OSError:
        return None
    if len(data) < layout.NAMES_AT or data[: len(layout.MAGIC)] != layout.MAGIC:
        return None
    return {cell: int(CELL.unpack_from(data, layout.cell_at(cell))[0]) for cell in Cell}, _streams(data)


class _Names:
    """Names by their place; what points nowhere sensible is unnamed."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._known: dict[int, str] = {0: ""}

    def __getitem__(self, at: int) -> str:
        if at not in self._known:
            size = int.from_bytes(self._data[at : at + 2], "little")
            self._known[at] = self._data[at + 2 : at + 2 + size].decode("utf-8", "replace")
        return self._known[at]


def _facts(text: bytes) -> dict[str, Any]:
    try:
        facts = json.loads(text)
    except ValueError:
        return {}
    return facts if isinstance(facts, dict) else {}


def _streams(data: bytes) -> tuple[StreamProgress, ...]:
    rows = (STREAM.unpack_from(data, layout.stream_at(slot)) for slot in range(layout.STREAMS))
    return tuple(StreamProgress(*row) for row in rows if row[1])


def _launches(data: bytes, at: int, number: int, names: _Names, *, in_order: bool) -> tuple[tuple[Launch, ...], int]:
    found, torn = [], 0
    for slot in range(number):
        place = at + slot * LAUNCH.size
        if place + LAUNCH.size > len(data):
            torn += 1
            break
        row = LAUNCH.unpack_from(data, place)
        if not row[0] and not row[-1]:
            continue
        whole = row[-1] == row[0] ^ TURN and (not in_order or row[0] % number == slot)
        if whole and (launch := _launch(row, names)) is not None:
            found.append(launch)
        else:
            torn += 1
    return tuple(sorted(found, key=lambda launch: launch.number)), torn


def _launch(row: tuple[int, ...], names: _Names) -> Launch | None:
    sequence, time_ns, step, kind, kept, more, phase, span, operator, kernel, stream, thread, graph = row[:13]
    try:
        known = Kind(kind)
    except ValueError:
        return None
    touches = tuple(
        Touch(row[at], row[at + 1], names[row[at + 2]], bool(row[at + 3] & layout.WRITTEN))
        for at in range(13, 13 + 4 * min(kept, layout.TOUCHES), 4)
    )
    return Launch(
        sequence, time_ns, step, known, names[phase], names[span], names[operator], names[kernel], stream, thread,
        graph, touches, more,
    )  # fmt: skip


def _buffers(data: bytes, at: int, number: int, names: _Names) -> tuple[Buffer, ...]:
    found = []
    for place in range(at, min(at + number * BUFFER.size, len(data) - BUFFER.size + 1), BUFFER.size):
        row = BUFFER.unpack_from(data, place)
        if not row[0] or row[-1] != row[0] ^ TURN:
            continue
        _, address, nbytes, made, freed, step, what, operator, flags, stream, freed_ns, _ = row
        made_here = bool(flags & layout.MADE)
        found.append(
            Buffer(address, nbytes, made, freed, step, names[what], names[operator], made_here, stream, freed_ns)
        )
    return tuple(sorted(found, key=lambda buffer: buffer.made))
