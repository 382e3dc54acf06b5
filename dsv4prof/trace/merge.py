"""Ranks -> one trace that every viewer opens whole: own integer pids, unique flow ids, lanes, one origin."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path

from dsv4prof.errors import InputError
from dsv4prof.model.event import Track
from dsv4prof.model.trace import MergedRank, MergedTrace, MergedTrack, RankTrace, TrackInfo
from dsv4prof.trace.base import lend_bases
from dsv4prof.trace.clock import fit_clocks
from dsv4prof.trace.flows import flow_base, renumber
from dsv4prof.trace.lanes import assign_lanes, by_track
from dsv4prof.trace.load import load_rank
from dsv4prof.trace.vendor import GPU_TRACK_CATEGORIES

OWN_TID_BASE = 1_000_000_000
MAX_TID = 2**31 - 1
_GPU_LABEL = re.compile(r"^GPU (\d+)$")


def load_ranks(paths: Sequence[str | Path]) -> list[RankTrace]:
    """Read every rank's file, in rank order. Raises InputError at the first that cannot be read."""
    traces, errors = load_readable(paths)
    if errors:
        raise errors[0]
    return traces


def load_readable(paths: Sequence[str | Path]) -> tuple[list[RankTrace], list[InputError]]:
    """The ranks that could be read, in rank order, and one error for each file that could not."""
    traces: list[RankTrace] = []
    errors: list[InputError] = []
    for path in sorted({Path(path) for path in paths}):
        try:
            traces.append(load_rank(path))
        except InputError as error:
            errors.append(error)
    return sorted(traces, key=lambda trace: trace.coordinates.rank), errors


def merge(traces: Iterable[RankTrace]) -> MergedTrace:
    """Put ranks side by side on one clock; the order of input does not matter.

    Raises InputError when there is nothing to merge or two files claim one rank.
    """
    ordered = lend_bases(sorted(traces, key=lambda trace: trace.coordinates.rank))
    if not ordered:
        raise InputError("there is no trace to merge", hint="give at least one rank file")
    for first, second in pairwise(ordered):
        if first.coordinates.rank == second.coordinates.rank:
            raise InputError(
                f"{first.source} and {second.source} both claim rank {first.coordinates.rank}",
                hint="merge one recording at a time, or put the rank into the file names (rank0, rank1, ...)",
            )
    ranks: list[MergedRank] = []
    next_pid = 1
    for trace in ordered:
        ranks.append(_merge_rank(trace, next_pid))
        next_pid += len(ranks[-1].pids)
    return MergedTrace(ranks, _origin([rank.trace for rank in ranks]), fit_clocks(ordered), _missing(ordered))


def _merge_rank(trace: RankTrace, first_pid: int) -> MergedRank:
    flows, orphans = renumber(trace.flows)
    rows = _Rows(trace, first_pid)
    lanes = assign_lanes(trace.slices, by_track(trace.slices), rows.lane_tid)
    cleaned = RankTrace(
        source=trace.source,
        coordinates=trace.coordinates,
        slices=trace.slices,
        instants=trace.instants,
        counters=trace.counters,
        flows=flows,
        tracks=trace.tracks,
        metadata=trace.metadata,
        base_ns=trace.base_ns,
        dropped=[*trace.dropped, *orphans],
        complete=trace.complete,
        asyncs=trace.asyncs,
        notes=trace.notes,
    )
    lane_count = sum(1 for row in rows.rows if row.lane > 1)
    return MergedRank(cleaned, rows.pids, lanes, lane_count, flow_base(trace.coordinates.rank), rows.rows)


class _Rows:
    """The rows of one rank in the merged trace: small positive pids, integer tids, names that say the rank."""

    def __init__(self, trace: RankTrace, first_pid: int) -> None:
        self.rank = trace.coordinates.rank
        gpu_pids = {s.track.pid for s in trace.slices if s.category in GPU_TRACK_CATEGORIES}
        infos = sorted(trace.tracks, key=lambda info: _process_order(info, gpu_pids))
        self.pids: dict[str, int] = {}
        self.rows: list[MergedTrack] = []
        self._row: dict[Track, MergedTrack] = {}
        self._lanes: dict[tuple[Track, int], int] = {}
        self._last_free: dict[int, int] = {}
        for info in infos:
            self.pids.setdefault(_key(info.track.pid), first_pid + len(self.pids))
        taken = {
            (_key(i.track.pid), i.track.tid)
            for i in infos
            if isinstance(i.track.tid, int) and 0 <= i.track.tid <= MAX_TID
        }
        self._used = {(self.pids[pid], tid) for pid, tid in taken if isinstance(tid, int)}
        for info in infos:
            self._add(info, gpu_pids)

    def _add(self, info: TrackInfo, gpu_pids: set[int | str]) -> None:
        pid = self.pids[_key(info.track.pid)]
        tid = info.track.tid
        if not isinstance(tid, int) or not 0 <= tid <= MAX_TID:
            tid = self._free_tid(pid)
        row = MergedTrack(
            pid=pid,
            tid=tid,
            source=info.track,
            process_name=_process_name(info, self.rank, gpu_pids),
            process_labels=info.process_labels,
            process_sort=pid,
            thread_name=info.thread_name or (info.track.tid or None if isinstance(info.track.tid, str) else None),
            thread_sort=info.thread_sort,
        )
        self.rows.append(row)
        self._row[info.track] = row

    def lane_tid(self, track: Track, lane: int) -> int:
        known = self._lanes.get((track, lane))
        if known is not None:
            return known
        base = self._row[track]
        tid = self._lanes[track, lane] = self._free_tid(base.pid)
        name = base.thread_name or f"thread {base.tid}"
        self.rows.append(
            MergedTrack(
                pid=base.pid,
                tid=tid,
                source=track,
                lane=lane,
                process_name=base.process_name,
                process_labels=base.process_labels,
                process_sort=base.process_sort,
                thread_name=f"{name.strip()} (lane {lane})",
                thread_sort=base.thread_sort,
            )
        )
        return tid

    def _free_tid(self, pid: int) -> int:
        tid = self._last_free.get(pid, OWN_TID_BASE) + 1
        while (pid, tid) in self._used:
            tid += 1
        self._last_free[pid] = tid
        return tid


def _key(pid: int | str) -> str:
    """Process 7 and a process called "7" differ; the integer is the usual one."""
    return str(pid) if isinstance(pid, int) else f"'{pid}'"


def _process_order(info: TrackInfo, gpu_pids: set[int | str]) -> tuple[int, int, str, int, str]:
    pid, tid = info.track.pid, info.track.tid
    kind = 2 if isinstance(pid, str) or pid < 0 else int(pid in gpu_pids)
    number = pid if isinstance(pid, int) else 0
    return kind, number, str(pid), tid if isinstance(tid, int) else MAX_TID, str(tid)


def _process_name(info: TrackInfo, rank: int, gpu_pids: set[int | str]) -> str:
    label = _GPU_LABEL.match(info.process_labels or "")
    if label is not None and info.track.pid in gpu_pids:
        return f"[rank {rank}] GPU {label[1]}"
    if info.track.pid in gpu_pids:
        return f"[rank {rank}] GPU {info.track.pid}"
    if isinstance(info.track.pid, str):
        return f"[rank {rank}] {info.process_name or info.track.pid or 'profiler'}"
    return f"[rank {rank}] {info.process_name or ('python' if info.track.pid >= 0 else 'profiler overhead')}"


def _origin(traces: list[RankTrace]) -> int:
    times: list[int] = []
    for trace in traces:
        times.extend(event.start_ns for event in trace.slices)
        for points in (trace.instants, trace.counters, trace.flows, trace.asyncs):
            times.extend(point.at_ns for point in points)
    return min(times, default=0)


def _missing(traces: list[RankTrace]) -> list[int]:
    present = {trace.coordinates.rank for trace in traces}
    world = max((trace.coordinates.world_size or 0 for trace in traces), default=0)
    return [rank for rank in range(world) if rank not in present]
