"""Surveys of all ranks -> how they are put side by side: numbers, names, clocks, one origin, and who is missing."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median

import msgspec
import numpy as np

from dsv4prof.errors import InputError
from dsv4prof.model.session import RankCoordinates
from dsv4prof.model.trace import ClockFit, Dropped, MergedTrack
from dsv4prof.trace.arrows import flow_base
from dsv4prof.trace.base import PERIOD_NS, borrowed_base
from dsv4prof.trace.clocks import Align, Alignment, RankCollectives, Straggler, align, correct
from dsv4prof.trace.collective_arrows import ArrowPoint, collective_arrows
from dsv4prof.trace.identity import listed_ranks
from dsv4prof.trace.ranks import RankSource
from dsv4prof.trace.rows import numbered, rank_label
from dsv4prof.trace.survey import Layout, Survey, restore

_GROUPS = ("pp", "dp", "tp", "ep")


class Surveyed(msgspec.Struct, frozen=True):
    """A rank that was looked at: where it is read from, its summary, and its layout or the file that holds it."""

    source: RankSource
    survey: Survey
    layout: Layout | Path

    def read_layout(self) -> Layout:
        return restore(self.layout) if isinstance(self.layout, Path) else self.layout


class RankPlan(msgspec.Struct, frozen=True):
    """How one rank is written. `base_ns` is added to its file's times, then `clock` is applied."""

    surveyed: Surveyed
    coordinates: RankCoordinates
    rows: list[MergedTrack]
    base_ns: int
    clock: ClockFit
    applied: bool
    notes: list[str]
    arrows: list[ArrowPoint] = []
    remarks: list[str] = []

    @property
    def survey(self) -> Survey:
        return self.surveyed.survey

    @property
    def complete(self) -> bool:
        return self.survey.facts.complete

    @property
    def dropped(self) -> list[Dropped]:
        return self.survey.facts.dropped

    @property
    def rank(self) -> int:
        return self.coordinates.rank

    @property
    def flow_base(self) -> int:
        return flow_base(self.rank)


class MergePlan(msgspec.Struct, frozen=True):
    """All ranks in order. `origin_ns` is the merged trace's zero, `clock_origin_ns` what drifts are counted from."""

    ranks: list[RankPlan]
    origin_ns: int
    last_ns: int
    clock_origin_ns: int
    stragglers: list[Straggler]
    missing_ranks: list[int]
    # Files that were left out, in sentences: who opens the merged trace later must know as well.
    unreadable: list[str] = []

    @property
    def clocks(self) -> list[ClockFit]:
        return [rank.clock for rank in self.ranks]


def plan(surveyed: Sequence[Surveyed], mode: Align = Align.AUTO, *, with_arrows: bool = False) -> MergePlan:
    """Put ranks side by side on one clock; the order of input does not matter. `with_arrows` ties collectives.

    Raises InputError when there is nothing to merge, when two files claim one rank, or as `align` does.
    """
    ordered = _ordered(surveyed)
    bases, notes = _bases([each.survey for each in ordered], mode)
    moved = [_at_base(each.survey, base) for each, base in zip(ordered, bases, strict=True)]
    applied = all(each.facts.clock is not None for each in moved)
    aligned = _recorded(moved, mode) if applied else align([each.collectives for each in moved], mode)
    fits = {fit.rank: fit for fit in aligned.clocks}
    points = {}
    if with_arrows:
        points = collective_arrows([each.collectives for each in moved], aligned, applied=applied)
    hosts = {each.facts.coordinates.host for each in moved}
    ranks: list[RankPlan] = []
    next_pid = 1
    for each, survey, base, note in zip(ordered, moved, bases, notes, strict=True):
        coordinates = survey.facts.coordinates
        label = rank_label(coordinates, with_host=len(hosts) > 1)
        ranks.append(
            RankPlan(
                surveyed=Surveyed(each.source, survey, each.layout),
                coordinates=coordinates,
                rows=numbered(survey.rows, next_pid, coordinates.rank, label),
                base_ns=base,
                clock=fits[coordinates.rank],
                applied=applied,
                notes=[*survey.facts.notes, *note],
                arrows=points.get(coordinates.rank, []),
                remarks=[*survey.facts.remarks, *_absolute(survey)],
            )
        )
        next_pid += survey.pid_count
    times = {rank.rank: _times(rank, aligned.origin_ns) for rank in ranks if rank.survey.first_ns is not None}
    return MergePlan(
        ranks=_with_losses(ranks, times),
        origin_ns=min((first for first, _ in times.values()), default=0),
        last_ns=max((last for _, last in times.values()), default=0),
        clock_origin_ns=aligned.origin_ns,
        stragglers=aligned.stragglers,
        missing_ranks=_missing(ranks),
    )


def narrowed(whole: MergePlan, found: Sequence[Surveyed]) -> MergePlan:
    """The plan with every rank looked at anew, in the plan's order; who a rank is, clocks and origin stay."""
    hosts = {rank.coordinates.host for rank in whole.ranks}
    ranks: list[RankPlan] = []
    next_pid = 1
    for rank, each in zip(whole.ranks, found, strict=True):
        survey = _at_base(each.survey, rank.base_ns)
        label = rank_label(rank.coordinates, with_host=len(hosts) > 1)
        rows = numbered(survey.rows, next_pid, rank.rank, label)
        surveyed = Surveyed(each.source, survey, each.layout)
        ranks.append(msgspec.structs.replace(rank, surveyed=surveyed, rows=rows))
        next_pid += survey.pid_count
    return msgspec.structs.replace(whole, ranks=ranks)


def _times(rank: RankPlan, clock_origin_ns: int) -> tuple[int, int]:
    """A rank's first and last time on the common clock."""
    own = np.array([rank.survey.first_ns or 0, rank.survey.last_ns], np.int64)
    first, last = (own if rank.applied else correct(own, rank.clock, clock_origin_ns)).tolist()
    return first, last


def _with_losses(ranks: list[RankPlan], times: dict[int, tuple[int, int]]) -> list[RankPlan]:
    """Say of each cut rank how much of the window its file no longer shows, judged by the whole ranks."""
    others = [rank for rank in ranks if rank.complete and rank.rank in times]
    if not others:
        return ranks
    begin = median(times[rank.rank][0] for rank in others)
    end = median(times[rank.rank][1] for rank in others)
    usual = median(rank.survey.counts["slices"] for rank in others)
    told = []
    for rank in ranks:
        if not rank.complete and rank.rank in times and end > begin:
            window = min(max((end - times[rank.rank][1]) / (end - begin), 0.0), 1.0)
            slices = max(1 - rank.survey.counts["slices"] / max(usual, 1), 0.0)
            lost = (
                f"; judged by the whole ranks, the last {window:.0%} of the window "
                f"and some {slices:.0%} of the slices are lost"
            )
            notes = [note + lost if note.startswith("file ends early") else note for note in rank.notes]
            rank = msgspec.structs.replace(rank, notes=notes)
        told.append(rank)
    return told


def _ordered(surveyed: Sequence[Surveyed]) -> list[Surveyed]:
    """By rank. Where names say groups and no world-wide rank, ranks are numbered by their places in the groups."""
    if not surveyed:
        raise InputError("there is no trace to merge", hint="give at least one rank file")
    by_rank = sorted(surveyed, key=lambda each: (each.survey.facts.coordinates.rank, each.survey.facts.source))
    ranks = [each.survey.facts.coordinates.rank for each in by_rank]
    places = [_place(each.survey.facts.coordinates) for each in by_rank]
    if len(set(ranks)) == len(ranks):
        return by_rank
    if len(set(places)) == len(places) and all(any(part is not None for part in place) for place in places):
        numbers, world = _grid(places)
        renumbered = [_renumbered(each, number, world) for each, number in zip(by_rank, numbers, strict=True)]
        return sorted(renumbered, key=lambda each: each.survey.facts.coordinates.rank)
    for first, second in pairwise(by_rank):
        if first.survey.facts.coordinates.rank == second.survey.facts.coordinates.rank:
            raise InputError(
                f"{first.survey.facts.source} and {second.survey.facts.source} both claim rank "
                f"{first.survey.facts.coordinates.rank}",
                hint="merge one recording at a time, put the rank into the file names (rank0, rank1, ...), "
                "or say how they are named with --rank-regex",
            )
    return by_rank


def _place(coordinates: RankCoordinates) -> tuple[int | None, ...]:
    return tuple(getattr(coordinates, name) for name in _GROUPS)


def _grid(places: list[tuple[int | None, ...]]) -> tuple[list[int], int]:
    """Numbers by the places in the groups, the last group fastest, and how many places there are.

    A group that the others already tell (SGLang's expert ranks are its tensor ranks) is no dimension of its own.
    """
    columns = [[part or 0 for part in column] for column in zip(*places, strict=True)]
    for drop in range(len(columns) - 1, -1, -1):
        rest = columns[:drop] + columns[drop + 1 :]
        if rest and len(set(zip(*rest, strict=True))) == len(places):
            columns = rest
    numbers, world = [0] * len(places), 1
    for column in columns:
        size = max(column) + 1
        numbers = [number * size + part for number, part in zip(numbers, column, strict=True)]
        world *= size
    return numbers, world


def _absolute(survey: Survey) -> list[str]:
    """Whether the file's times were since 1970, where a viewer's numbers keep a quarter of a microsecond."""
    if survey.facts.clock is not None or survey.facts.base_ns or (survey.first_ns or 0) < PERIOD_NS:
        return []
    return ["its times are since 1970, which viewers round to 0.25 us; they are written from the trace's beginning"]


def _renumbered(each: Surveyed, rank: int, world: int) -> Surveyed:
    replace = msgspec.structs.replace
    facts = each.survey.facts
    remark = f"the files' ranks repeat; numbered {rank} by its place in the groups"
    coordinates = replace(facts.coordinates, rank=rank, world_size=world)
    survey = replace(
        each.survey,
        facts=replace(facts, coordinates=coordinates, remarks=[*facts.remarks, remark]),
        collectives=replace(each.survey.collectives, rank=rank),
    )
    return Surveyed(each.source, survey, each.layout)


def _bases(surveys: list[Survey], mode: Align) -> tuple[list[int], list[list[str]]]:
    """Each rank's base time, with a note where it was cut off and taken from another rank."""
    bases = [survey.facts.base_ns for survey in surveys]
    if mode is Align.NONE:
        return [0] * len(bases), [[] for _ in bases]
    lent = borrowed_base(surveys)
    if lent is None:
        return bases, [[] for _ in bases]
    base, lender, needy = lent
    note = f"its base time was behind the cut; that of rank {lender} was taken"
    return (
        [base if place in needy else own for place, own in enumerate(bases)],
        [[note] if place in needy else [] for place in range(len(bases))],
    )


def _at_base(survey: Survey, base_ns: int) -> Survey:
    """The summary with its times moved from the file's base to another one."""
    by = base_ns - survey.facts.base_ns
    if not by:
        return survey
    replace = msgspec.structs.replace
    return replace(
        survey,
        first_ns=None if survey.first_ns is None else survey.first_ns + by,
        last_ns=survey.last_ns + by,
        markers=[replace(point, at_ns=point.at_ns + by) for point in survey.markers],
        collectives=_shifted(survey.collectives, by),
        steps=[
            replace(step, start_ns=step.start_ns + by, end_ns=step.end_ns + by, phases=()) for step in survey.steps
        ],
    )


def _shifted(collectives: RankCollectives, by: int) -> RankCollectives:
    rows = collectives.rows.copy()
    rows["start"] += by
    rows["end"] += by
    return msgspec.structs.replace(collectives, start_ns=collectives.start_ns + by, rows=rows)


def _recorded(surveys: list[Survey], mode: Align) -> Alignment:
    """The clocks of ranks that come from a merged trace: they lie on one clock already, and only the rest is asked."""
    judged = align([survey.collectives for survey in surveys], Align.NONE if mode is Align.NONE else Align.BASE)
    clocks = [survey.facts.clock for survey in surveys if survey.facts.clock is not None]
    return msgspec.structs.replace(judged, clocks=clocks)


def _missing(ranks: list[RankPlan]) -> list[int]:
    """Ranks of the job without a file, by its world size or by its process groups."""
    present = {rank.rank for rank in ranks}
    world = max((rank.coordinates.world_size or 0 for rank in ranks), default=0)
    listed = {number for rank in ranks for number in listed_ranks(rank.survey.facts.metadata)}
    return sorted((set(range(world)) | listed) - present)
