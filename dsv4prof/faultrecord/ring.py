"""A process that dies takes its memory with it; what it wrote through a shared mapping of a file stays.

The kernel keeps the pages of such a file whatever ends the process: SIGKILL, an abort of the GPU runtime, a
segmentation fault. Only a machine that goes down loses them. Writing is one `pack_into` a record, with no lock and no
call to the system; sequence numbers come from a counter that Python itself keeps whole between threads.
"""

from __future__ import annotations

import json
import mmap
import os
import time
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from dsv4prof.errors import OutputError
from dsv4prof.faultrecord import layout
from dsv4prof.faultrecord.layout import BUFFER, CELL, LAUNCH, STREAM, TURN, Cell, Kind

_NO_TOUCH = tuple(layout.NO_TOUCHES * each for each in range(layout.TOUCHES + 1))
_LONGEST_NAME = 512
_RETURNED_AT = layout.cell_at(Cell.RETURNED)


class RingWriter:
    """Writes one rank's fault record. `launches`, `captured` and `buffers` say how many of each are kept: the file has
    about 8.5 MB with the defaults, of which only what was written takes room.

    Raises OutputError where the file cannot be made.
    """

    def __init__(
        self,
        path: Path,
        *,
        facts: Mapping[str, Any],
        launches: int = 16384,
        captured: int = 4096,
        buffers: int = 32768,
        names_bytes: int = 1 << 20,
    ) -> None:
        self.path = path
        self._launches, self._captured, self._buffers = launches, captured, buffers
        self._names_size = names_bytes
        self._captured_at = layout.NAMES_AT + names_bytes + buffers * BUFFER.size
        self._launches_at = self._captured_at + captured * LAUNCH.size
        self._buffers_at = layout.NAMES_AT + names_bytes
        size = self._launches_at + launches * LAUNCH.size
        self._map = _mapped(path, size)
        self._names: dict[str, int] = {"": 0}
        self._names_used = 1
        self._sequence = count(1)
        self._captures = count(1)
        self.last = 0
        self._streams: dict[int, int] = {}
        self._write_header(facts)

    def _write_header(self, facts: Mapping[str, Any]) -> None:
        clocks = {"wall_ns": time.time_ns(), "monotonic_ns": time.monotonic_ns(), "pid": os.getpid()}
        text = _fitting({**facts, **clocks})
        self._map[layout.FACTS_AT : layout.FACTS_AT + len(text)] = text
        # The magic last: a file without it is one whose writer never began.
        header = layout.HEADER.pack(
            layout.MAGIC, layout.VERSION, len(text), self._names_size, self._buffers, self._captured, self._launches,
            BUFFER.size, LAUNCH.size,
        )  # fmt: skip
        self._map[: len(header)] = header

    def name(self, text: str) -> int:
        """The number of a name; 0 when there is no room for another one."""
        known = self._names.get(text)
        if known is not None:
            return known
        data = text.encode("utf-8", "replace")[:_LONGEST_NAME]
        at, end = self._names_used, self._names_used + 2 + len(data)
        if end > self._names_size:
            self.cell(Cell.NAMES_LOST, 1)
            return 0
        self._map[layout.NAMES_AT + at : layout.NAMES_AT + end] = len(data).to_bytes(2, "little") + data
        self._names_used = end
        self._names[text] = at
        self.cell(Cell.NAMES_USED, end)
        return at

    def cell(self, cell: Cell, value: int) -> None:
        CELL.pack_into(self._map, layout.CELLS_AT + CELL.size * cell, value)

    def read_cell(self, cell: Cell) -> int:
        return int(CELL.unpack_from(self._map, layout.cell_at(cell))[0])

    def launch(
        self,
        kind: Kind,
        *,
        step: int,
        phase: int = 0,
        span: int = 0,
        operator: int = 0,
        kernel: int = 0,
        stream: int = 0,
        thread: int = 0,
        graph: int = 0,
        touches: Sequence[int] = (),
        captured: bool = False,
    ) -> int:
        """Write a record before its work is begun; returns its sequence number.

        `touches` is flat, four numbers each: address, bytes, description (a name), flags. What `captured` says goes
        into a table of its own, which later launches do not overwrite: a replay runs it again.
        """
        number = next(self._sequence)
        given = len(touches) >> 2
        kept = given if given < layout.TOUCHES else layout.TOUCHES
        if captured:
            index = next(self._captures)
            at = self._captured_at + (index % self._captured) * LAUNCH.size
            self.cell(Cell.CAPTURED, index)
        else:
            at = self._launches_at + (number % self._launches) * LAUNCH.size
        now = time.monotonic_ns()
        LAUNCH.pack_into(
            self._map, at, number, now, step, kind, kept, min(given - kept, 65535), phase, span, operator, kernel,
            stream, thread, graph, *touches[: kept << 2], *_NO_TOUCH[layout.TOUCHES - kept], number ^ TURN,
        )  # fmt: skip
        layout.LAST.pack_into(self._map, layout.CELLS_AT, number, now)
        self.last = number
        return number

    def returned(self, number: int) -> None:
        """The call of this launch came back to the host."""
        CELL.pack_into(self._map, _RETURNED_AT, number)

    def progress(self, stream: int, *, marked: int, done: int) -> None:
        """How far a stream is: the last launch with a marker behind it, the last one known to be complete.

        Beyond 32 streams the others' progress stays unknown.
        """
        slot = self._streams.setdefault(stream, len(self._streams))
        if slot < layout.STREAMS:
            STREAM.pack_into(self._map, layout.stream_at(slot), stream, marked, done)

    def buffer(
        self,
        slot: int,
        *,
        generation: int,
        address: int,
        nbytes: int,
        made: int,
        freed: int = 0,
        step: int = 0,
        description: int = 0,
        operator: int = 0,
        flags: int = 0,
        stream: int = 0,
        freed_ns: int = 0,
    ) -> None:
        """Write one row of the buffers' table; `made` and `freed` are sequence numbers."""
        at = self._buffers_at + slot * BUFFER.size
        BUFFER.pack_into(
            self._map, at, generation, address, nbytes, made, freed, step, description, operator, flags, stream,
            freed_ns, generation ^ TURN,
        )  # fmt: skip

    @property
    def buffers(self) -> int:
        """How many rows the buffers' table has."""
        return self._buffers

    def close(self, *, ended: bool = True) -> None:
        """The end, in good order unless `ended` is false; the file stays."""
        self.cell(Cell.ENDED, int(ended))
        self._map.flush()
        self._map.close()


def _mapped(path: Path, size: int) -> mmap.mmap:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb+") as file:
            file.truncate(size)
            return mmap.mmap(file.fileno(), size)
    except OSError as error:
        raise OutputError(
            f"the fault record {path} cannot be made: {error.strerror or error}", hint="name a folder with room for it"
        ) from error


def _fitting(facts: Mapping[str, Any]) -> bytes:
    """The facts as JSON in the room that there is; a long command line is what gives way."""
    text = json.dumps(facts).encode()
    if len(text) > layout.FACTS_SIZE:
        text = json.dumps({key: value for key, value in facts.items() if not isinstance(value, list)}).encode()
    return text if len(text) <= layout.FACTS_SIZE else b"{}"
