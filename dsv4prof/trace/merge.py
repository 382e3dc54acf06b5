"""Ranks in memory -> one trace for analyses, with the rows, lanes, arrows and clocks that the written file has."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
import numpy as np

from dsv4prof.errors import InputError
from dsv4prof.model.event import FlowPoint
from dsv4prof.model.trace import MergedRank, MergedTrace, RankTrace
from dsv4prof.trace.clocks import Align
from dsv4prof.trace.columns import BINDS_ENCLOSING, Ints
from dsv4prof.trace.identity import Naming
from dsv4prof.trace.load import load_rank
from dsv4prof.trace.memory import RankMemory
from dsv4prof.trace.planning import MergePlan, RankPlan, Surveyed, plan
from dsv4prof.trace.segment import Clock
from dsv4prof.trace.survey import survey


def load_ranks(paths: Sequence[str | Path]) -> list[RankTrace]:
    """Read every rank's file, in rank order. Raises InputError at the first that cannot be read."""
    traces, errors = load_readable(paths)
    if errors:
        raise errors[0]
    return traces


def load_readable(
    paths: Sequence[str | Path], naming: Naming | None = None
) -> tuple[list[RankTrace], list[InputError]]:
    """The ranks that could be read, in rank order, and one error for each file that could not."""
    traces: list[RankTrace] = []
    errors: list[InputError] = []
    for path in sorted({str(path) for path in paths}):
        try:
            traces.append(load_rank(path, naming=naming))
        except InputError as error:
            errors.append(error)
    return sorted(traces, key=lambda trace: trace.coordinates.rank), errors


def merge(traces: Iterable[RankTrace], mode: Align = Align.AUTO) -> MergedTrace:
    """Put ranks side by side on one clock; the order of input does not matter.

    Raises InputError when there is nothing to merge or two files claim one rank.
    """
    surveyed = []
    for trace in traces:
        source = RankMemory(trace)
        summary, layout = survey(source.stream())
        surveyed.append(Surveyed(source, summary, layout))
    whole = plan(surveyed, mode)
    ranks = [_rank(rank, whole) for rank in whole.ranks]
    return MergedTrace(ranks, whole.origin_ns, whole.clocks, whole.missing_ranks, whole.clock_origin_ns)


def _rank(rank: RankPlan, whole: MergePlan) -> MergedRank:
    source = rank.surveyed.source
    assert isinstance(source, RankMemory), "these ranks are in memory"
    layout = rank.surveyed.read_layout()
    clock = Clock(rank, 0, whole.clock_origin_ns)
    facts = rank.survey.facts
    trace = _on_clock(source.trace, clock, rank.base_ns)
    trace = msgspec.structs.replace(
        trace,
        coordinates=rank.coordinates,
        base_ns=rank.base_ns,
        flows=_flows(rank, clock),
        dropped=facts.dropped,
        notes=rank.notes,
        clock=rank.clock,
    )
    lanes = {
        int(ordinal): rank.rows[place].tid
        for ordinal, place in zip(layout.moved.tolist(), layout.moved_place.tolist(), strict=True)
    }
    pids = {_key(row.source.pid): row.pid for row in rank.rows}
    lane_count = rank.survey.counts["lanes"]
    return MergedRank(trace, pids, lanes, lane_count, rank.flow_base, rank.rows)


def _key(pid: int | str) -> str:
    """Process 7 and a process called "7" differ; the integer is the usual one."""
    return str(pid) if isinstance(pid, int) else f"'{pid}'"


def _on_clock(trace: RankTrace, clock: Clock, base_ns: int) -> RankTrace:
    """The trace with its times on the common clock; the same object where that changes nothing."""
    own = trace.base_ns
    if clock.keeps(base_ns == own):
        return trace
    replace = msgspec.structs.replace
    starts = np.array([s.start_ns - own for s in trace.slices], np.int64)
    durations = np.array([s.dur_ns for s in trace.slices], np.int64)
    start, dur = (part.tolist() for part in clock.spans(starts, durations))

    def moved(points: list) -> list:
        at = clock.at(np.array([p.at_ns - own for p in points], np.int64)).tolist()
        return [replace(p, at_ns=ns) for p, ns in zip(points, at, strict=True)]

    return replace(
        trace,
        slices=[
            replace(s, start_ns=begin, dur_ns=length)
            for s, begin, length in zip(trace.slices, start, dur, strict=True)
        ],
        instants=moved(trace.instants),
        counters=moved(trace.counters),
        asyncs=moved(trace.asyncs),
    )


def _flows(rank: RankPlan, clock: Clock) -> list[FlowPoint]:
    """Points with numbers 1, 2, ... of the rank's own, each arrow one start followed by its ends."""
    source, layout = rank.surveyed.source, rank.surveyed.read_layout()
    stream = source.stream()
    for _ in stream.blocks():
        pass
    words, tracks, rows = stream.words, stream.tracks, layout.flows
    at: Ints = clock.at(rows["ts"])
    return [
        FlowPoint(
            ph=chr(row["ph"]),
            name=words[row["name"]],
            category=words[row["cat"]],
            track=tracks[row["track"]],
            at_ns=ns,
            id=number,
            binding="e" if row["flags"] & BINDS_ENCLOSING else None,
        )
        for row, ns, number in zip(rows, at.tolist(), layout.flow_number.tolist(), strict=True)
    ]
