"""All ranks on one clock, that of the lowest rank: what was fitted, how well it holds, and who the others wait for."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

import msgspec
import numpy as np

from dsv4prof.errors import InputError
from dsv4prof.model.trace import ClockFit
from dsv4prof.trace.clocks.collect import RankCollectives
from dsv4prof.trace.clocks.match import Matches, match
from dsv4prof.trace.clocks.nodes import Clock, share_clocks
from dsv4prof.trace.clocks.pairs import Ints
from dsv4prof.trace.clocks.robust import Floats, Line
from dsv4prof.trace.clocks.solve import (
    LEAST_MATCHES,
    Solution,
    corrected_ends,
    event_ends,
    medians,
    reaches,
    rows_by_rank,
    solve,
)
from dsv4prof.trace.clocks.stragglers import Straggler, find_stragglers


class Align(str, Enum):
    """What ranks are aligned by. `auto` fits where the collectives bear it, and says why where they do not."""

    AUTO = "auto"
    BASE = "base"
    COLLECTIVES = "collectives"
    NONE = "none"


class Alignment(msgspec.Struct, frozen=True):
    """One ClockFit a rank, in the order of the ranks given.

    A rank's time t (absolute ns) is t - offset_ns - drift_ppm * 1e-6 * (t - origin_ns) on the common clock, which is
    that of the lowest rank. `origin_ns` is the first event of all ranks, so that an offset is the one at the start.
    """

    origin_ns: int
    clocks: list[ClockFit]
    stragglers: list[Straggler]
    matches: Matches


class Arrival(NamedTuple):
    """One rank's part in a collective: the slice's place in the list given to `collect`, its times on its own clock."""

    rank: int
    ordinal: int
    start_ns: int
    end_ns: int


def align(ranks: list[RankCollectives], mode: Align) -> Alignment:
    """Fit every rank's clock by the ends of the collectives that it shares with others.

    Raises InputError in mode `collectives` when a rank has too few matches. The order of `ranks` does not matter to
    what is found.
    """
    order = sorted(range(len(ranks)), key=lambda at: ranks[at].rank)
    sorted_ranks = [ranks[at] for at in order]
    origin = min((one.start_ns for one in ranks if one.start_ns or len(one.rows)), default=0)
    if mode is Align.NONE:
        clocks = [ClockFit(one.rank, 0, None, None, 0, "times as in the file, as asked for") for one in ranks]
        return Alignment(origin, clocks, [], match([], origin))
    matches = match(sorted_ranks, origin)
    floor = _grid(matches)
    solution = solve(matches, len(ranks), floor)
    if mode is Align.COLLECTIVES:
        _refuse_few(sorted_ranks, solution)
    base = [Clock(0.0, None, 0.0, 0.0, at) for at in range(len(ranks))]
    fitted = base if mode is Align.BASE else _fitted(sorted_ranks, matches, solution, floor)
    residuals, noise = _residuals(matches, fitted, solution)
    before, noise_before = _residuals(matches, base, solution)
    why = "base times, as asked for" if mode is Align.BASE else ""
    if mode is Align.AUTO and noise >= noise_before:
        fitted, residuals, noise, why = base, before, noise_before, "base times: they agree as well as any fit"
    clocks = [_clock_fit(at, sorted_ranks, fitted, solution, residuals[at], why) for at in range(len(ranks))]
    back = sorted(range(len(ranks)), key=lambda at: order[at])
    return Alignment(
        origin, [clocks[at] for at in back], _stragglers(sorted_ranks, matches, fitted, solution, noise), matches
    )


def correct(times: Ints, fit: ClockFit, origin_ns: int) -> Ints:
    """Absolute times (int64 ns) on the common clock: the drift's part is rounded to the nearest ns, halves to even.

    Later times stay later or equal: drifts are far below 1. Exact for times within 50 days of the origin.
    """
    moved = times - np.int64(fit.offset_ns)
    if fit.drift_ppm:
        moved -= np.rint((times - np.int64(origin_ns)) * (fit.drift_ppm * 1e-6)).astype(np.int64)
    return moved


def arrows(ranks: list[RankCollectives], alignment: Alignment) -> Iterator[list[Arrival]]:
    """The parts of each matched collective, in order of rank; `ranks` are those that were aligned, in any order."""
    ordered = sorted(ranks, key=lambda one: one.rank)
    matches = alignment.matches
    cuts = np.flatnonzero(np.diff(matches.event)) + 1
    for rows in np.split(np.arange(len(matches.event)), cuts):
        if len(rows):
            yield [_arrival(ordered[matches.rank[at]], int(matches.row[at])) for at in rows]


def _arrival(rank: RankCollectives, row: int) -> Arrival:
    one = rank.rows[row]
    return Arrival(rank.rank, int(one["ordinal"]), int(one["start"]), int(one["end"]))


def _grid(matches: Matches) -> float:
    """The least noise of an end: older writers tell whole microseconds."""
    coarse = len(matches.end) > 0 and not np.any((matches.end + float(matches.origin_ns % 1000)) % 1000)
    return 300.0 if coarse else 1.0


def _refuse_few(ranks: list[RankCollectives], solution: Solution) -> None:
    for one, fitted, count in zip(ranks, solution.lines, solution.counts, strict=True):
        if fitted is None:
            raise InputError(
                f"rank {one.rank} shares {count} collectives with the other ranks; a clock needs {LEAST_MATCHES}",
                hint="align by base times, or record a longer window",
            )
    apart = [one.rank for one, home in zip(ranks, solution.component, strict=True) if home]
    if apart:
        raise InputError(
            f"no collective connects rank {apart[0]} with rank {ranks[0].rank}", hint="align by base times instead"
        )


def _fitted(ranks: list[RankCollectives], matches: Matches, solution: Solution, floor: float) -> list[Clock]:
    clocks = [Clock(0.0, None, 0.0, 0.0, at) for at in range(len(ranks))]
    ends = event_ends(matches, solution.lines)
    hosts = [one.host for one in ranks]
    parts = rows_by_rank(matches.rank, len(ranks))
    for home in sorted(set(solution.component)):
        members = [at for at, one in enumerate(solution.component) if one == home and solution.lines[at] is not None]
        if len(members) < 2:
            continue
        lines = {at: line for at in members if (line := solution.lines[at]) is not None}
        pairs: dict[int, tuple[Floats, Floats, Floats]] = {}
        for at in members:
            common = ends[matches.event[parts[at]]]
            known = ~np.isnan(common)
            pairs[at] = (matches.end[parts[at]][known], common[known], reaches(matches, parts[at][known]))
        for at, clock in share_clocks(members, lines, pairs, hosts, floor).items():
            clocks[at] = clock
    return clocks


def _lines(clocks: list[Clock], solution: Solution) -> list[Line | None]:
    return [
        None if placed is None else Line(0.0, clock.level, clock.drift or 0.0, 0.0, 0.0, 0.0)
        for clock, placed in zip(clocks, solution.lines, strict=True)
    ]


def _residuals(matches: Matches, clocks: list[Clock], solution: Solution) -> tuple[list[int | None], float]:
    """Each rank's median distance from the collectives' common ends, and that of all together, in ns."""
    corrected, placed = corrected_ends(matches, _lines(clocks, solution))
    gaps = np.abs(corrected - medians(matches.event, corrected, placed)[matches.event])
    usable = placed & ~np.isnan(gaps)
    if not usable.any():
        return [None] * len(clocks), 0.0
    gaps = gaps[usable]
    parts = [gaps[rows] for rows in rows_by_rank(matches.rank[usable], len(clocks))]
    return [round(float(np.median(part))) if len(part) else None for part in parts], float(np.median(gaps))


def _stragglers(
    ranks: list[RankCollectives], matches: Matches, clocks: list[Clock], solution: Solution, noise: float
) -> list[Straggler]:
    _, placed = corrected_ends(matches, _lines(clocks, solution))
    starts, _ = corrected_ends(matches._replace(end=matches.start), _lines(clocks, solution))
    names = np.array([one.rank for one in ranks], dtype=np.int64)
    return find_stragglers(
        names[matches.rank[placed]], matches.event[placed], matches.group[placed], starts[placed], noise
    )


def _clock_fit(
    at: int, ranks: list[RankCollectives], clocks: list[Clock], solution: Solution, residual: int | None, why: str
) -> ClockFit:
    clock, count = clocks[at], solution.counts[at]
    rank, home = ranks[at].rank, solution.component[at]
    drift = None if clock.drift is None else clock.drift * 1e6
    if solution.lines[at] is None:
        few = f"{count} collectives matched, and a clock needs {LEAST_MATCHES}" if count else "no collective matched"
        return ClockFit(rank, 0, None, None, count, f"base times: {few}")
    if residual is None:
        return ClockFit(rank, 0, None, None, count, "base times: no other rank's clock could be fitted")
    if why:
        return ClockFit(rank, 0, None, residual, count, why)
    to = f"rank {ranks[home].rank}"
    if at == home:
        reason = "reference rank" if at == 0 else f"base times: no collective connects it with rank {ranks[0].rank}"
        return ClockFit(rank, 0, drift, residual, count, reason)
    apart = "" if home == 0 else f"; no collective connects it with rank {ranks[0].rank}"
    return ClockFit(rank, round(clock.level), drift, residual, count, f"{_reason(clock, clocks[home], to)}{apart}")


def _reason(clock: Clock, reference: Clock, to: str) -> str:
    if clock.node == reference.node:
        if not round(clock.level):
            return f"shares the clock of {to}: base times agree, +-{clock.error / 1e3:.2f} us"
        return f"shares the clock of {to}; its own offset from the ends of collectives, +-{clock.error / 1e3:.2f} us"
    if clock.drift is None:
        limit = f"+-{clock.drift_error * 1e6:.1f} ppm" if np.isfinite(clock.drift_error) else "nothing"
        return f"offset to {to} from the ends of collectives; too few or too close for a drift (known to {limit})"
    return f"offset and drift to {to} from the ends of collectives, +-{clock.drift_error * 1e6:.2f} ppm"
