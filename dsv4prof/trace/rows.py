"""The rows of one rank in the merged trace: small positive pids, integer tids, names that say the rank."""

from __future__ import annotations

import re
from collections.abc import Collection

import msgspec

from dsv4prof.model.event import Track
from dsv4prof.model.session import RankCoordinates
from dsv4prof.model.trace import MergedTrack, TrackInfo

OWN_TID_BASE = 1_000_000_000
MAX_TID = 2**31 - 1
_GPU_LABEL = re.compile(r"^GPU (\d+)$")
# Kineto repeats the number behind the name.
_STREAM = re.compile(r"^stream -?\d+\s*(-?\d+)?\s*$")
_GROUPS = ("tp", "dp", "pp", "ep")


class RankRows:
    """Rows with pids 1, 2, ... of their own; `numbered` puts them behind those of other ranks."""

    def __init__(self, infos: Collection[TrackInfo], gpu_pids: set[int | str]) -> None:
        ordered = sorted(infos, key=lambda info: _process_order(info, gpu_pids))
        self.rows: list[MergedTrack] = []
        self.place: dict[Track, int] = {}
        self._lanes: dict[tuple[int, int], int] = {}
        self._last_free: dict[int, int] = {}
        pids: dict[str, int] = {}
        for info in ordered:
            pids.setdefault(_key(info.track.pid), 1 + len(pids))
        self._used = {
            (pids[_key(info.track.pid)], info.track.tid)
            for info in ordered
            if isinstance(info.track.tid, int) and 0 <= info.track.tid <= MAX_TID
        }
        for info in ordered:
            self._add(info, pids[_key(info.track.pid)], gpu_pids)

    def _add(self, info: TrackInfo, pid: int, gpu_pids: set[int | str]) -> None:
        tid = info.track.tid
        if not isinstance(tid, int) or not 0 <= tid <= MAX_TID:
            tid = self._free_tid(pid)
        self.place[info.track] = len(self.rows)
        self.rows.append(
            MergedTrack(
                pid=pid,
                tid=tid,
                source=info.track,
                process_name=_process_name(info, gpu_pids),
                process_labels=info.process_labels,
                process_sort=pid,
                thread_name=_thread_name(info, gpu_pids),
                thread_sort=info.thread_sort,
            )
        )

    def lane(self, place: int, lane: int) -> int:
        """The place of an extra lane (2, 3, ...) of the row at `place`, made when it is first asked for."""
        known = self._lanes.get((place, lane))
        if known is not None:
            return known
        base = self.rows[place]
        name = base.thread_name or f"thread {base.tid}"
        self._lanes[place, lane] = len(self.rows)
        self.rows.append(
            msgspec.structs.replace(
                base, tid=self._free_tid(base.pid), lane=lane, thread_name=f"{name.strip()} (lane {lane})"
            )
        )
        return len(self.rows) - 1

    def _free_tid(self, pid: int) -> int:
        tid = self._last_free.get(pid, OWN_TID_BASE - 1) + 1
        while (pid, tid) in self._used:
            tid += 1
        self._last_free[pid] = tid
        self._used.add((pid, tid))
        return tid


def numbered(rows: list[MergedTrack], first_pid: int, rank: int, label: str) -> list[MergedTrack]:
    """The same rows with pids from `first_pid` on, the label before every process name, the rank behind every stream's.
    """
    return [
        msgspec.structs.replace(
            row,
            pid=first_pid + row.pid - 1,
            process_sort=first_pid + row.pid - 1,
            process_name=f"[{label}] {row.process_name}",
            thread_name=_told_apart(row.thread_name, rank),
        )
        for row in rows
    ]


def rank_label(coordinates: RankCoordinates, *, with_host: bool) -> str:
    """`rank 5`, `rank 5 TP1 DP1`, `node-a rank 5 TP1 DP1`: the host where the ranks have several."""
    parts = [coordinates.host] if with_host and coordinates.host else []
    parts.append(f"rank {coordinates.rank}")
    for name in _GROUPS:
        number = getattr(coordinates, name)
        if number is not None:
            parts.append(f"{name.upper()}{number}")
    return " ".join(parts)


def _thread_name(info: TrackInfo, gpu_pids: set[int | str]) -> str | None:
    """Streams have a name always: a row without one cannot be pinned in a viewer."""
    tid = info.track.tid
    if info.track.pid in gpu_pids and (info.thread_name is None or _STREAM.match(info.thread_name)):
        return f"stream {tid}"
    return info.thread_name or (tid or None if isinstance(tid, str) else None)


def _told_apart(thread_name: str | None, rank: int) -> str | None:
    """Pinned rows stand side by side without their processes."""
    if thread_name is None or not thread_name.startswith("stream "):
        return thread_name
    name, lane, number = thread_name.partition(" (lane ")
    return f"{name} (rank {rank}){lane}{number}"


def _key(pid: int | str) -> str:
    return f"{type(pid).__name__}:{pid}"


def _process_order(info: TrackInfo, gpu_pids: set[int | str]) -> tuple[int, int, str, int, str]:
    pid, tid = info.track.pid, info.track.tid
    kind = 2 if isinstance(pid, str) or pid < 0 else int(pid in gpu_pids)
    number = pid if isinstance(pid, int) else 0
    return kind, number, str(pid), tid if isinstance(tid, int) else MAX_TID, str(tid)


def _process_name(info: TrackInfo, gpu_pids: set[int | str]) -> str:
    label = _GPU_LABEL.match(info.process_labels or "")
    if label is not None and info.track.pid in gpu_pids:
        return f"GPU {label[1]}"
    if info.track.pid in gpu_pids:
        return f"GPU {info.track.pid}"
    if isinstance(info.track.pid, str):
        return info.process_name or info.track.pid or "profiler"
    return info.process_name or ("python" if info.track.pid >= 0 else "profiler overhead")
