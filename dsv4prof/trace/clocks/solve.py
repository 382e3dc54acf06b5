"""From matched collectives to one line a rank: how far its clock is from the common one, and how that grows.

A collective ends at one time everywhere, which nobody knows. So it is taken as the middle of what the ranks that are
already placed say; each rank is fitted to it, and both are repeated. Ranks of other groups join through shared ones.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dsv4prof.trace.clocks.match import Matches
from dsv4prof.trace.clocks.pairs import MAX_DRIFT, Ints
from dsv4prof.trace.clocks.robust import Floats, Line, centre, line

# Matches that a rank must have: a line through fewer fits whatever they say.
LEAST_MATCHES = 5
_LEAST_FOR_SLOPE = 8
_SWEEPS = 3
# A kernel's length and its end come from two timers of one device, whose rates differ by as much as quartz does.
_RATES_DIFFER = 2e-5


class Solution(NamedTuple):
    """`lines[r]` maps rank r's time t to its distance from the common clock (None: not enough matches).

    `component` is the lowest place among the ranks that rank r is connected with, itself when there are none.
    """

    lines: list[Line | None]
    component: list[int]
    counts: list[int]


def solve(matches: Matches, ranks: int, floor: float) -> Solution:
    """Fit every rank that has at least `LEAST_MATCHES`. `floor` is the least noise of an end, in ns."""
    rows = rows_by_rank(matches.rank, ranks)
    counts = [len(one) for one in rows]
    known: list[Line | None] = [None] * ranks
    component = list(range(ranks))
    for first in range(ranks):
        if known[first] is None and counts[first] >= LEAST_MATCHES:
            known[first] = Line(0.0, 0.0, 0.0, 0.0, 0.0, floor)
            for rank in _spread(matches, rows, known, first, floor):
                component[rank] = first
    for _ in range(_SWEEPS):
        ends = event_ends(matches, known)
        for rank, old in enumerate(known):
            if old is not None:
                known[rank] = _fit(matches, rows[rank], ends, floor) or old
    return Solution(known, component, counts)


def _spread(matches: Matches, rows: list[Ints], known: list[Line | None], first: int, floor: float) -> list[int]:
    """Place every rank that `first` reaches through common collectives; answers which."""
    placed = [first]
    waiting = [rank for rank, one in enumerate(known) if one is None and len(rows[rank]) >= LEAST_MATCHES]
    edge = [first]
    total = int(matches.event.max(initial=-1)) + 1
    ends = np.full(total, np.nan)
    while edge and waiting:
        for rank in edge:
            at = rows[rank]
            fresh = np.isnan(ends[matches.event[at]])
            ends[matches.event[at[fresh]]] = matches.end[at[fresh]] - _value(known[rank], matches.end[at[fresh]])
        edge = []
        for rank in waiting:
            fitted = _fit(matches, rows[rank], ends, floor)
            if fitted is not None:
                known[rank] = fitted
                edge.append(rank)
        waiting = [rank for rank in waiting if known[rank] is None]
        placed += edge
    return placed


def _value(fit: Line | None, t: Floats) -> Floats:
    return fit.value(t) if fit is not None else np.zeros(len(t))


def _fit(matches: Matches, rows: Ints, ends: Floats, floor: float) -> Line | None:
    """A rank's line against the ends on the common clock (nan: not known); None with too few of them."""
    target = ends[matches.event[rows]]
    usable = ~np.isnan(target)
    if int(usable.sum()) < LEAST_MATCHES:
        return None
    t = matches.end[rows][usable]
    away = t - target[usable]
    reach = reaches(matches, rows[usable])
    if len(t) >= _LEAST_FOR_SLOPE:
        fitted = line(t, away, floor, reach)
        if abs(fitted.slope) <= MAX_DRIFT:
            return fitted
    level, error = centre(away, floor, reach)
    at = float(np.median(t))
    spread = float(np.sqrt(np.sum((t - t.mean()) ** 2)))
    sigma = error * len(t) ** 0.5
    return Line(at, level, 0.0, error, sigma / spread if spread else float("inf"), sigma)


def reaches(matches: Matches, rows: Ints) -> Floats:
    """What each end may be off by beside the noise, in ns: it grows with the length of its kernel."""
    return _RATES_DIFFER * (matches.end[rows] - matches.start[rows])


def event_ends(matches: Matches, lines: list[Line | None]) -> Floats:
    """Each collective's end on the common clock: the median of the placed ranks; nan when fewer than two took part."""
    corrected, usable = corrected_ends(matches, lines)
    return medians(matches.event, corrected, usable)


def corrected_ends(matches: Matches, lines: list[Line | None]) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """Every row's end on the common clock, and whether its rank is placed."""
    zero = Line(0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    table = np.array([[one.at, one.level, one.slope] for one in (known or zero for known in lines)]).reshape(-1, 3)
    at, level, slope = (table[matches.rank, column] for column in range(3))
    placed = np.array([one is not None for one in lines], dtype=bool)
    return matches.end - level - slope * (matches.end - at), placed[matches.rank]


def medians(event: Ints, values: Floats, usable: npt.NDArray[np.bool_]) -> Floats:
    """The median of each event's usable values; nan where there are fewer than two. `event` need not be in order."""
    total = int(event.max(initial=-1)) + 1
    event, values = event[usable], values[usable]
    order = np.lexsort((values, event))
    event, values = event[order], values[order]
    sizes = np.bincount(event, minlength=total)
    first = np.concatenate([[0], np.cumsum(sizes)])[:-1]
    result = np.full(total, np.nan)
    some = sizes > 1
    low, high = first[some] + (sizes[some] - 1) // 2, first[some] + sizes[some] // 2
    result[some] = (values[low] + values[high]) / 2
    return result


def rows_by_rank(rank: Ints, ranks: int) -> list[Ints]:
    """The places of each rank's rows."""
    order = np.argsort(rank, kind="stable")
    bounds = np.searchsorted(rank[order], np.arange(ranks + 1))
    return [order[bounds[at] : bounds[at + 1]] for at in range(ranks)]
