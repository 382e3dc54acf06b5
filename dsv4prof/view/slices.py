"""Finding a slice of a merged trace by its rank and its number, without holding the trace."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from dsv4prof.errors import InputError, UsageError
from dsv4prof.view.links import Spot

if TYPE_CHECKING:
    from dsv4prof.trace.columns import Rows, Scanner

_COMPLETE = ord("X")
_HINT = "merge the rank files again: dsv4prof merge"


class _Row(msgspec.Struct):
    pid: int


class _Rank(msgspec.Struct):
    coordinates: _Coordinates
    rows: list[_Row]


class _Coordinates(msgspec.Struct):
    rank: int


class _Header(msgspec.Struct):
    """What is needed of the header that a merged file carries under `dsv4prof`."""

    ranks: list[_Rank]


class Found(msgspec.Struct, frozen=True):
    """A slice, and where the trace begins and ends: what a viewer's window must lie in. ns since the trace's zero."""

    spot: Spot
    first_ns: int
    last_ns: int


def parse_slice(text: str) -> tuple[int, int]:
    """`RANK:INDEX` as numbers. Raises UsageError."""
    rank, colon, index = text.partition(":")
    if not (colon and rank.isdecimal() and index.isdecimal()):
        raise UsageError(f"--slice {text!r} is not RANK:INDEX", hint="--slice 2:1500 is the 1,501st slice of rank 2")
    return int(rank), int(index)


def find_slice(path: Path, rank: int, index: int) -> Found:
    """The slice number `index` (from 0, in the file's order) of a rank in a merged JSON trace, read in two passes.

    Raises InputError when the file is no merged trace, UsageError when it has no such rank or slice.
    """
    import numpy as np

    pids = _pids_of(path, rank)
    spot: Spot | None = None
    seen, first, last = 0, None, 0
    for scanner, rows in _slices(path):
        low, high = int(rows["ts"].min()), int((rows["ts"] + rows["dur"]).max())
        first, last = low if first is None else min(first, low), max(last, high)
        places = [place for place, track in enumerate(scanner.tracks) if track.pid in pids]
        own = rows[np.isin(rows["track"], places)]
        if spot is None and index < seen + len(own):
            spot = _spot(own, index - seen, scanner)
        seen += len(own)
    if spot is None:
        raise UsageError(f"rank {rank} has {seen:,} slices, and none has the number {index}", hint="they count from 0")
    return Found(spot, first or 0, last)


def _spot(rows: Rows, at: int, scanner: Scanner) -> Spot:
    row = rows[at]
    track = scanner.tracks[int(row["track"])]
    name = scanner.words[int(row["name"])]
    return Spot(int(row["ts"]), int(row["dur"]), int(track.pid), int(track.tid), name)


def _pids_of(path: Path, rank: int) -> set[int]:
    """The merged process numbers of a rank. The header may stand behind the events."""
    from dsv4prof.trace.chunks import DamagedError, chunks
    from dsv4prof.trace.core import scanner
    from dsv4prof.trace.document import Document

    document = Document(chunks(path), scanner())
    try:
        for _ in document.blocks():
            pass
        header = msgspec.json.decode(document.fields["dsv4prof"], type=_Header)
    except (DamagedError, KeyError, msgspec.DecodeError) as error:
        raise InputError(f"{path} is no merged trace that --slice can be looked up in", hint=_HINT) from error
    ranks = {each.coordinates.rank: {row.pid for row in each.rows} for each in header.ranks}
    if rank not in ranks:
        raise UsageError(f"{path} has no rank {rank}", hint=f"it has {', '.join(map(str, sorted(ranks)))}")
    return ranks[rank]


def _slices(path: Path) -> Iterator[tuple[Scanner, Rows]]:
    """The complete events of a file, block by block, with the scanner that knows their names and tracks."""
    from dsv4prof.trace.chunks import chunks
    from dsv4prof.trace.core import scanner
    from dsv4prof.trace.document import Document, Odd

    tables = scanner()
    for block in Document(chunks(path), tables).blocks():
        if isinstance(block, Odd):
            continue
        rows = block.rows[block.rows["ph"] == _COMPLETE]
        if len(rows):
            yield tables, rows
