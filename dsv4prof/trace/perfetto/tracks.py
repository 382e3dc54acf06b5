"""The tracks of one rank: the rank as a process, its devices and processes below it, threads and streams below those.

Extra lanes carry their row's name and a common key, so that a viewer may draw them as one row.
"""

from __future__ import annotations

import re

from dsv4prof.model.trace import MergedTrack
from dsv4prof.trace.perfetto.packets import packet
from dsv4prof.trace.perfetto.proto import message, number, text
from dsv4prof.trace.perfetto.schema import CHILDREN_EXPLICIT, MERGE_BY_KEY, Packet, Process, Track

_UUID_BITS = 24
_LANE = re.compile(r" \(lane \d+\)$")
_BRACKET = re.compile(r"^\[([^\]]*)\] *")


class RankTracks:
    """Numbers (uuids) of a rank's tracks and the packets that describe them; more can be added later."""

    def __init__(self, rank: int, rows: list[MergedTrack]) -> None:
        self._base = rank + 1 << _UUID_BITS
        self._rank = rank
        self._count = 0
        self._packets: list[bytes] = []
        pid = min((row.pid for row in rows), default=rank + 1)
        name, prefix = _rank_name(rank, rows)
        process = number(Process.PID, pid) + text(Process.NAME, name) + number(Process.SORT, pid)
        self._root = self._add(
            message(Track.PROCESS, process) + number(Track.CHILD_ORDER, CHILDREN_EXPLICIT), parent=None
        )
        self._nodes: dict[int, int] = {}
        self._first: dict[object, int] = {}
        self.of_row = [self._row(row, place, prefix) for place, row in enumerate(rows)]

    def node(self, pid: int) -> int:
        """The track of a merged process, for what belongs to no thread."""
        return self._nodes[pid]

    def child(self, name: str, parent: int, *, extra: bytes = b"") -> int:
        """One more track below another; its packet is in what `described` gives next."""
        return self._add(text(Track.NAME, name) + extra, parent=parent)

    def lane(self, row: MergedTrack, place: int) -> int:
        """One more lane of a row."""
        merged = _merged_with(self._first[row.source])
        return self.child(self._name(row), self._nodes[row.pid], extra=number(Track.RANK, place) + merged)

    def described(self) -> bytes:
        """Packets of the tracks added since the last call."""
        packets, self._packets = self._packets, []
        return b"".join(packets)

    def _row(self, row: MergedTrack, place: int, prefix: str) -> int:
        node = self._nodes.get(row.pid)
        if node is None:
            order = number(Track.RANK, row.process_sort) + number(Track.CHILD_ORDER, CHILDREN_EXPLICIT)
            node = self._nodes[row.pid] = self.child(
                row.process_name.removeprefix(prefix) or row.process_name, self._root, extra=order
            )
        base = self._first.get(row.source)
        name = self._name(row)
        order = number(Track.RANK, place)
        if base is None:
            # Its own number is the key that its lanes share; two threads of one name stay two rows.
            uuid = self._base + self._count
            self._first[row.source] = uuid
            return self.child(name, node, extra=order + _merged_with(uuid))
        return self.child(name, node, extra=order + _merged_with(base))

    def _name(self, row: MergedTrack) -> str:
        """Without the rank, which stands above it, and without its lane."""
        name = row.thread_name if row.thread_name is not None else f"thread {row.tid}"
        if row.lane > 1:
            name = _LANE.sub("", name)
        return name.strip().removeprefix(f"rank {self._rank} ").removesuffix(f" (rank {self._rank})")

    def _add(self, content: bytes, *, parent: int | None) -> int:
        uuid = self._base + self._count
        self._count += 1
        below = b"" if parent is None else number(Track.PARENT, parent)
        self._packets.append(packet(message(Packet.TRACK, number(Track.UUID, uuid) + below + content)))
        return uuid


def _merged_with(uuid: int) -> bytes:
    return number(Track.MERGE, MERGE_BY_KEY) + number(Track.MERGE_KEY, uuid)


def _rank_name(rank: int, rows: list[MergedTrack]) -> tuple[str, str]:
    """(the rank's name, what the names of its processes begin with): `[node0 TP0] python` says both."""
    brackets = {match[0] if (match := _BRACKET.match(row.process_name)) else "" for row in rows}
    if len(brackets) != 1 or not (prefix := brackets.pop()):
        return f"rank {rank}", ""
    return prefix.strip()[1:-1], prefix
