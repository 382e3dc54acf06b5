"""Reads in a trace with a device: calls into the CUDA or HIP runtime that did not return before the device was done.

On ROCm a blocking copy is the one call hipMemcpyWithStream; on CUDA it is a pageable cudaMemcpyAsync and then a
cudaStreamSynchronize. A detector that knows only *StreamSynchronize finds none of the reads on AMD.
"""

from __future__ import annotations

from bisect import bisect_right
from statistics import median

import msgspec

from dsv4prof.sync.context import Context, context_of
from dsv4prof.sync.gpu_idle import IdleAfter
from dsv4prof.sync.launches import Launches
from dsv4prof.sync.read import Read
from dsv4prof.sync.readings import ALLOCATION, SYNCHRONIZE, TO_DEVICE, TO_HOST, Reading, is_copy, reading_of
from dsv4prof.sync.run_ahead import run_ahead
from dsv4prof.trace import vendor
from dsv4prof.trace.index import RankIndex
from dsv4prof.trace.record_coverage import coverage_of
from dsv4prof.trace.vendor import HOST_OP_CATEGORIES, RUNTIME_CATEGORIES

_SLOW_FACTOR = 5
_SLOW_FLOOR_NS = 20_000
_ALLOCATION_FLOOR_NS = 200_000


class _Wait(msgspec.Struct):
    """One stretch of time in which a thread waited: an outermost call, and those inside it that wait too.

    A copy that waits calls a synchronisation, and a runtime call calls the driver's; their time is the same time.
    """

    outer: int
    end_ns: int
    indexes: list[int]


def gpu_reads(rank: RankIndex) -> list[Read]:
    """Every wait of one rank, in order of time; waits inside one operator are one read."""
    groups: dict[tuple[str, int], list[_Wait]] = {}
    for wait in _waits_of(rank):
        holder = _operator(rank, wait.outer)
        groups.setdefault(("call", wait.outer) if holder is None else ("op", holder), []).append(wait)
    launches = Launches(rank)
    idle = IdleAfter(rank, launches) if coverage_of(rank).complete else None
    return sorted(
        (_read(rank, waits, idle, launches) for waits in groups.values()),
        key=lambda read: rank.slices[read.index].start_ns,
    )


def _waits_of(rank: RankIndex) -> list[_Wait]:
    """Stretches of waiting, thread by thread, none of which overlaps another of its thread."""
    slow_ns = _slow_copy_ns(rank)
    waiting = {i for i in rank.runtime_calls if _waits(rank, i, slow_ns) and not _is_profilers_own(rank, i)}
    found: list[_Wait] = []
    for indexes in rank.tracks.values():
        last: _Wait | None = None
        for index in indexes:
            if index not in waiting:
                continue
            event = rank.slices[index]
            if last is None or event.start_ns >= last.end_ns:
                last = _Wait(index, event.end_ns, [index])
                found.append(last)
            else:
                last.end_ns = max(last.end_ns, event.end_ns)
                last.indexes.append(index)
    return found


def _operator(rank: RankIndex, index: int) -> int | None:
    """The operator that a runtime call serves, through the runtime calls round it."""
    place = rank.parents[index]
    while place >= 0 and rank.slices[place].category in RUNTIME_CATEGORIES:
        place = rank.parents[place]
    return place if place >= 0 and rank.slices[place].category in HOST_OP_CATEGORIES else None


def _read(rank: RankIndex, waits: list[_Wait], idle: IdleAfter | None, launches: Launches) -> Read:
    longest = max((wait.outer for wait in waits), key=lambda index: rank.slices[index].dur_ns)
    last = max((wait.outer for wait in waits), key=lambda index: rank.slices[index].end_ns)
    first = min((wait.outer for wait in waits), key=lambda index: rank.slices[index].start_ns)
    context = context_of(rank, longest)
    return Read(
        index=longest,
        context=context,
        reading=_reading(rank, [index for wait in waits for index in wait.indexes], context),
        blocked_ns=sum(wait.end_ns - rank.slices[wait.outer].start_ns for wait in waits),
        idle_ns=idle.after(last) if idle is not None else None,
        ahead=run_ahead(rank, launches, first, last),
        calls=tuple(rank.slices[wait.outer].name for wait in waits),
    )


def _reading(rank: RankIndex, indexes: list[int], context: Context) -> Reading:
    if all(rank.slices[index].name in vendor.ALLOCATION for index in indexes):
        where = f" in {context.ops[0]}" if context.ops else ""
        return msgspec.structs.replace(ALLOCATION, what=ALLOCATION.what + where)
    direction = _direction(rank, indexes)
    if direction == "HtoD":
        return TO_DEVICE
    known = reading_of(context.ops)
    if known is not None:
        return known
    if direction == "DtoH" or is_copy(context.ops):
        return TO_HOST
    name = rank.slices[indexes[0]].name
    if name in vendor.SYNCHRONIZE:
        return SYNCHRONIZE[vendor.SYNCHRONIZE[name]]
    return TO_HOST


def _direction(rank: RankIndex, indexes: list[int]) -> str | None:
    """DtoH or HtoD of the copy that was waited for: its own GPU record, or that of a copy in the same operator."""
    holder = _operator(rank, indexes[0])
    for index in [*indexes, *(rank.runtime_children.get(holder, []) if holder is not None else [])]:
        for gpu in rank.gpu_by_correlation.get(rank.correlation(index) or 0, []):
            for direction in ("DtoH", "HtoD"):
                if direction in rank.slices[gpu].name:
                    return direction
    return None


def _slow_copy_ns(rank: RankIndex) -> int:
    """From which duration an asynchronous copy must have waited: far above what a launch takes here."""
    launches = [rank.slices[i].dur_ns for i in rank.runtime_calls if vendor.is_launch(rank.slices[i].name)]
    return max(_SLOW_FLOOR_NS, round(_SLOW_FACTOR * median(launches)) if launches else 0)


def _waits(rank: RankIndex, index: int, slow_ns: int) -> bool:
    event = rank.slices[index]
    if vendor.blocks(event.name):
        return True
    if event.name in vendor.ALLOCATION:
        return event.dur_ns >= _ALLOCATION_FLOOR_NS
    if event.name not in vendor.ASYNC_COPY or event.dur_ns < slow_ns:
        return False
    copies = rank.gpu_by_correlation.get(rank.correlation(index) or 0, [])
    return event.name.startswith("hip") or any(vendor.is_pageable_copy(rank.slices[gpu].name) for gpu in copies)


def _is_profilers_own(rank: RankIndex, index: int) -> bool:
    """The profiler waits for the device when it starts and stops: outside every operator and step, first or last."""
    event = rank.slices[index]
    if vendor.SYNCHRONIZE.get(event.name) != "device":
        return False
    chain = rank.chain(index)
    if any("profiler.py" in rank.slices[place].name for place in chain):
        return True
    if any(rank.slices[place].category in HOST_OP_CATEGORIES for place in chain) or rank.step_at(event.start_ns):
        return False
    starts = rank.runtime_starts
    place = bisect_right(starts, event.start_ns)
    return place <= 1 or place >= len(starts) - 1
