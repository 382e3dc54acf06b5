"""One rank's collectives in a few tens of bytes each: all that the clocks need of a trace not kept in memory."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from dsv4prof.model.event import Slice
from dsv4prof.model.session import RankCoordinates
from dsv4prof.trace.clocks.candidates import is_candidate
from dsv4prof.trace.identity import distributed_info

# A collective as one rank saw it. `key` is a place in `RankCollectives.keys`, `group` one in its `groups`.
COLLECTIVE = np.dtype(
    [
        ("start", "<i8"),  # ns, as the file says it with its base time
        ("end", "<i8"),
        ("seq", "<i8"),  # the group's own count, -1 where the writer does not tell it
        ("ordinal", "<i4"),  # the slice's place in the list given to `collect`
        ("key", "<i4"),
        ("group", "<i4"),
    ]
)
Collectives = npt.NDArray[np.void]

_UNEVEN = re.compile(r"all_?to_?all|send|recv|gather|scatter", re.IGNORECASE)
_MAX_SEQ = 1 << 62


class RankCollectives(msgspec.Struct, frozen=True):
    """The collectives of one rank, in order of their ends. It can be pickled, and holds 36 bytes a collective.

    `start_ns` is the time of the rank's first event. Two ranks' collectives can be the same only where the texts of
    `groups` and `keys` are equal; a group's text is empty when the trace does not name it.
    """

    rank: int
    host: str | None
    start_ns: int
    keys: list[str]
    groups: list[str]
    rows: Collectives


class _Args(msgspec.Struct):
    correlation: Any = None
    seq: Any = msgspec.field(default=None, name="Seq")
    group: Any = msgspec.field(default=None, name="Process Group Name")
    group_id: Any = msgspec.field(default=None, name="Process Group ID")
    ranks: Any = msgspec.field(default=None, name="Process Group Ranks")
    collective: Any = msgspec.field(default=None, name="Collective name")
    elements: Any = msgspec.field(default=None, name="In msg nelems")


_DECODER = msgspec.json.Decoder(_Args)


def collect(
    slices: list[Slice],
    coordinates: RankCoordinates,
    metadata: dict[str, Any],
    *,
    start_ns: int | None = None,
) -> RankCollectives:
    """Keep what the clocks need of a rank's candidate slices; others among them are passed over.

    `start_ns` is the rank's first event (absolute ns), at which offsets will be told; the first collective stands in.
    """
    known = _known_groups(metadata)
    keys: dict[str, int] = {}
    groups: dict[str, int] = {}
    rows: list[tuple[int, int, int, int, int, int]] = []
    for ordinal, slice_, args, place in _in_graphs(slices):
        group = _group(args, known)
        seq = args.seq if isinstance(args.seq, int) and 0 <= args.seq < _MAX_SEQ else -1
        key = f"{slice_.name}|{args.collective or ''}|{_size(slice_.name, args)}|{place}"
        key_at = keys.setdefault(key, len(keys))
        group_at = groups.setdefault(group, len(groups))
        rows.append((slice_.start_ns, slice_.end_ns, seq, ordinal, key_at, group_at))
    table = np.array(rows, dtype=COLLECTIVE)
    table = table[np.lexsort((table["ordinal"], table["start"], table["end"]))]
    if start_ns is None:
        start_ns = int(table["start"].min()) if len(table) else 0
    return RankCollectives(coordinates.rank, coordinates.host, start_ns, list(keys), list(groups), table)


def _in_graphs(slices: list[Slice]) -> Iterator[tuple[int, Slice, _Args, int]]:
    """Each candidate with its arguments and its place in the launch that it came from.

    All kernels of a graph's replay carry the correlation of its launch; eager ones have one of their own, and place 0.
    """
    taken: dict[Any, int] = {}
    wanted = [ordinal for ordinal, one in enumerate(slices) if is_candidate(one.name, one.category)]
    for ordinal in sorted(wanted, key=lambda at: slices[at].start_ns):
        slice_ = slices[ordinal]
        args = _args(slice_)
        place = 0
        # Correlation 0 says that the launch was not seen.
        if slice_.category == "kernel" and isinstance(args.correlation, int) and args.correlation:
            # A stream at a time: two streams' kernels may come in another order on another rank.
            lane = (args.correlation, slice_.track.tid)
            place = taken.get(lane, 0)
            taken[lane] = place + 1
        yield ordinal, slice_, args, place


def _args(slice_: Slice) -> _Args:
    if slice_.args is None:
        return _Args()
    try:
        return _DECODER.decode(slice_.args)
    except (msgspec.DecodeError, RecursionError):
        return _Args()


def _size(name: str, args: _Args) -> str:
    """The number of elements where it is the same on every rank by the collective's nature."""
    if args.elements is None or _UNEVEN.search(str(args.collective or name)):
        return ""
    return str(args.elements)


def _group(args: _Args, known: dict[str, str]) -> str:
    name = args.group if args.group is not None else args.group_id
    # A long list of ranks is written with dots in its middle; the file's own description has it whole.
    ranks = str(args.ranks) if args.ranks is not None and "..." not in str(args.ranks) else None
    if name is None and ranks is None:
        # Kernels in graphs name no group, and a rank may use several: only their pattern tells which ranks share it.
        return ""
    return f"{name} {ranks or known.get(str(name), '')}".replace(" ", "")


def _known_groups(metadata: dict[str, Any]) -> dict[str, str]:
    """The ranks of each group that the file describes, as text, by the group's name."""
    described = distributed_info(metadata).get("pg_config")
    if not isinstance(described, list):
        return {}
    return {
        str(one.get("pg_name")): str(one.get("ranks"))
        for one in described
        if isinstance(one, dict) and isinstance(one.get("ranks"), list)
    }
