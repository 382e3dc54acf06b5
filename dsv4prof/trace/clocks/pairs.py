"""Two ranks' collectives of one group: which of one is which of the other, whatever either lacks.

Counting is enough when both saw the same ones. When they did not, the ends tell: the gaps between them are the same on
both ranks, to within the noise, and no other shift of one sequence against the other repeats all of them.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dsv4prof.trace.clocks.robust import Floats, line, spread

Ints = npt.NDArray[np.int64]

# With fewer, a pattern that fits may do so by chance.
LEAST = 4
# Clocks of machines in use differ by less; a fit beyond it comes from a wrong match.
MAX_DRIFT = 500e-6
# The ends of one collective differ by far less than the time to the next one, or order says nothing.
_CLOSE = 0.2
# A shift needs this share of the shorter sequence's voters, and those within this share of the best are its equals.
_QUORUM = 0.5
_EQUALS = 0.02
# Of the collectives in the time that both ranks show, so many must have a partner.
_COVERED = 0.7
_VOTERS = 192
_CANDIDATES = 12
# How far apart, in ns, ends may be to vote for one shift: from a GPU's clocks to a loaded CPU's threads.
_BINS = (2e3, 10e3, 50e3, 250e3, 1e6)

Pairs = tuple[Ints, Ints]


def pair(t_a: Floats, kind_a: Ints, t_b: Floats, kind_b: Ints) -> Pairs | None:
    """Places in a and in b that are the same collective, or None when no pattern holds for both.

    `t_*` are ends in ns, ascending, from one origin; `kind_*` are equal where two collectives may be the same.
    """
    if min(len(t_a), len(t_b)) == 0:
        return None
    if len(t_a) == len(t_b) and np.array_equal(kind_a, kind_b):
        every = np.arange(len(t_a), dtype=np.int64)
        if holds(t_a, t_b):
            return every, every
    return _by_pattern(t_a, kind_a, t_b, kind_b)


def holds(t_a: Floats, t_b: Floats) -> bool:
    """Whether the ends of matched collectives keep one distance, but for drift, compared to the gaps between them."""
    if len(t_a) < LEAST:
        return False
    gaps = np.diff(t_a)
    usual = float(np.median(gaps))
    if float(np.median(np.abs(np.diff(t_b) - gaps))) > 2 * _CLOSE * usual:
        return False
    away = t_b - t_a
    drift = line(t_a, away, 1.0, np.zeros(len(t_a))) if len(t_a) >= 8 else None
    rest = away - drift.value(t_a) if drift is not None and abs(drift.slope) < MAX_DRIFT else away
    return spread(rest) <= _CLOSE * usual


def _by_pattern(t_a: Floats, kind_a: Ints, t_b: Floats, kind_b: Ints) -> Pairs | None:
    if min(len(t_a), len(t_b)) < LEAST:
        return None
    swap = len(t_b) > len(t_a)
    if swap:
        found = _shorter_in_longer(t_b, kind_b, t_a, kind_a)
        return None if found is None else (found[1], found[0])
    return _shorter_in_longer(t_a, kind_a, t_b, kind_b)


def _shorter_in_longer(t_a: Floats, kind_a: Ints, t_b: Floats, kind_b: Ints) -> Pairs | None:
    away, span = _votes(t_a, kind_a, t_b, kind_b)
    need = max(_QUORUM * min(_VOTERS, len(t_b)), LEAST)
    # Bins as wide as the gaps would find a partner for everything.
    widest = 2 * _CLOSE * float(np.median(np.diff(t_a)))
    for width in (one for one in _BINS if one <= max(widest, _BINS[0])):
        best: list[tuple[int, float, Pairs]] = []
        # Over the voters' time a drift of 50 ppm moves the distance by this much.
        for shift in _shifts(away, width + 50e-6 * span, need):
            pairs = _follow(t_a, kind_a, t_b, kind_b, shift, width)
            if pairs is not None and _covers(t_a, t_b, pairs) and holds(t_a[pairs[0]], t_b[pairs[1]]):
                best.append((len(pairs[0]), abs(float(np.median(t_b[pairs[1]] - t_a[pairs[0]]))), pairs))
        if not best:
            continue
        most = max(count for count, _, _ in best)
        # A program that repeats itself to the nanosecond fits at several shifts when a rank is cut: the clocks of hosts
        # are set, so that the least offset is the likely one.
        equals = [one for one in best if one[0] >= most - max(2, _EQUALS * most)]
        return min(equals, key=lambda one: one[1])[2]
    return None


def _covers(t_a: Floats, t_b: Floats, pairs: Pairs) -> bool:
    """Whether most of what both ranks show from the first pair to the last is paired: samples agree by chance."""
    a, b = pairs
    shorter = min(a[-1] - a[0], b[-1] - b[0]) + 1
    ahead, behind = min(a[0], b[0]), min(len(t_a) - 1 - a[-1], len(t_b) - 1 - b[-1])
    return len(a) >= _COVERED * (shorter + ahead + behind)


def _votes(t_a: Floats, kind_a: Ints, t_b: Floats, kind_b: Ints) -> tuple[Floats, float]:
    """All distances b - a between some neighbours in b and every a of their kind, ascending; the neighbours' time."""
    begin = max((len(t_b) - _VOTERS) // 2, 0)
    voters = slice(begin, begin + _VOTERS)
    away = (t_b[voters, None] - t_a[None, :])[kind_b[voters, None] == kind_a[None, :]]
    away.sort()
    return away, float(t_b[voters][-1] - t_b[voters][0])


def _shifts(away: Floats, reach: float, need: float) -> list[float]:
    """Distances that at least `need` voters have in common, to within `reach`, the most supported first."""
    if not len(away):
        return []
    counts = np.searchsorted(away, away + reach, side="right") - np.arange(len(away))
    usable = np.flatnonzero(counts >= need)
    if not len(usable):
        return []
    shifts: list[float] = []
    for at in usable[np.argsort(-counts[usable], kind="stable")]:
        middle = float(np.median(away[at : at + counts[at]]))
        if all(abs(middle - other) > reach for other in shifts):
            shifts.append(middle)
            if len(shifts) == _CANDIDATES:
                break
    # Cut ranks of a regular program: the shift nearest to nothing counts even if a dozen others have as many votes.
    likely = usable[counts[usable] >= 0.9 * counts.max()]
    at = likely[np.argmin(np.abs(away[likely]))]
    return [*shifts, float(np.median(away[at : at + counts[at]]))]


def _follow(t_a: Floats, kind_a: Ints, t_b: Floats, kind_b: Ints, shift: float, width: float) -> Pairs | None:
    """From one shift to all pairs: nearest ends, a line through their distances, nearest ends again."""
    level, slope, at, reach = shift, 0.0, float(np.median(t_b)), 2 * width + 50e-6 * float(t_b[-1] - t_b[0])
    pairs: Pairs | None = None
    for _ in range(4):
        moved = t_b - level - slope * (t_b - at)
        pairs = _nearest(t_a, kind_a, moved, kind_b, reach)
        if len(pairs[0]) < LEAST:
            return None
        a, b = t_a[pairs[0]], t_b[pairs[1]]
        if len(a) >= 8:
            fit = line(b, b - a, 1.0, np.zeros(len(b)))
            if abs(fit.slope) < MAX_DRIFT:
                level, slope, at = fit.level, fit.slope, fit.at
                reach = min(reach, max(8 * fit.sigma, width))
                continue
        level, slope = float(np.median(b - a)), 0.0
    return pairs


def _nearest(t_a: Floats, kind_a: Ints, t_b: Floats, kind_b: Ints, reach: float) -> Pairs:
    """For each of b the nearest of a, where they are of one kind, within reach, and each other's nearest."""
    right = np.clip(np.searchsorted(t_a, t_b), 1, max(len(t_a) - 1, 1))
    right = np.minimum(right, len(t_a) - 1)
    left = np.maximum(right - 1, 0)
    place = np.where(np.abs(t_a[left] - t_b) <= np.abs(t_a[right] - t_b), left, right)
    distance = np.abs(t_a[place] - t_b)
    fits = (distance <= reach) & (kind_a[place] == kind_b)
    b = np.flatnonzero(fits)
    a = place[b]
    # Of several of b at one of a, the nearest.
    order = np.lexsort((distance[b], a))
    a, b = a[order], b[order]
    first = np.ones(len(a), dtype=bool)
    first[1:] = a[1:] != a[:-1]
    a, b = a[first], b[first]
    back = np.argsort(b, kind="stable")
    return a[back].astype(np.int64), b[back].astype(np.int64)
