"""Means and shares with 95 % intervals, from numbers that come in clusters: those of one document are alike."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

_Z = 1.959964
"""Of a 95 % interval of the normal distribution."""
_EXACT = (12.706205, 4.302653)
"""Student's, of 1 and 2 degrees of freedom, where the expansion is no good."""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """low, high: a 95 % interval, both None where there are too few clusters to tell. samples: what was averaged over;
    clusters: documents that they come from.
    """

    value: float
    low: float | None
    high: float | None
    samples: int
    clusters: int


def mean_of(
    sums: Sequence[float], counts: Sequence[int], *, clusters: Sequence[Hashable] | None = None
) -> Estimate | None:
    """Sum over count of all texts, one pair a text; None where nothing was counted.

    clusters: names the cluster of each text; None takes every text for itself. The interval is that of a ratio of
    totals (linearised, between clusters; Student's, since there may be few), so it needs two of them.
    """
    pairs = _clustered(sums, counts, clusters)
    total, n = math.fsum(sums), sum(counts)
    if not n:
        return None
    value = total / n
    if len(pairs) < 2:
        return Estimate(value=value, low=None, high=None, samples=n, clusters=len(pairs))
    half = _student(len(pairs) - 1) * math.sqrt(_variance(pairs, value))
    return Estimate(value=value, low=value - half, high=value + half, samples=n, clusters=len(pairs))


def share_of(
    hits: Sequence[int], trials: Sequence[int], *, clusters: Sequence[Hashable] | None = None
) -> Estimate | None:
    """Hits over trials of all texts; None without a trial.

    The interval is Wilson's, which also holds near 0 and 1, for as many independent trials as would vary as much as
    the clusters do, fewer still where few clusters tell how much that is (Korn and Graubard, 1998). One cluster tells
    nothing, unless it is a single trial.
    """
    pairs, n = _clustered(hits, trials, clusters), sum(trials)
    if not n:
        return None
    share = sum(hits) / n
    if len(pairs) == 1 < n:
        return Estimate(value=share, low=None, high=None, samples=n, clusters=1)
    effective = float(n)
    if len(pairs) > 1 and 0 < share < 1:
        unsure = (_student(n - 1) / _student(len(pairs) - 1)) ** 2
        effective = min(effective, unsure * share * (1 - share) / max(_variance(pairs, share), 1e-30))
    low, high = _wilson(share, effective)
    return Estimate(value=share, low=low, high=high, samples=n, clusters=len(pairs))


def _clustered(
    sums: Sequence[float], counts: Sequence[int], clusters: Sequence[Hashable] | None
) -> list[tuple[float, int]]:
    """Sum and count of each cluster that has any samples; the others say nothing."""
    totals: dict[Hashable, tuple[float, int]] = {}
    for name, each, count in zip(range(len(sums)) if clusters is None else clusters, sums, counts, strict=True):
        total, number = totals.get(name, (0.0, 0))
        totals[name] = total + each, number + count
    return [pair for pair in totals.values() if pair[1]]


def _variance(pairs: Sequence[tuple[float, int]], value: float) -> float:
    """Of a ratio of totals."""
    deviations = np.array([total - value * number for total, number in pairs], dtype=np.float64)
    whole = sum(number for _, number in pairs)
    return float(np.square(deviations).sum()) * len(pairs) / (len(pairs) - 1) / whole**2


def _student(freedom: int) -> float:
    """The 97.5 % point of Student's distribution, to 2 in 1,000: Cornish and Fisher's expansion in 1 / freedom."""
    if freedom <= len(_EXACT):
        return _EXACT[freedom - 1]
    z = _Z
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + sum(term / freedom ** (power + 1) for power, term in enumerate(terms))


def _wilson(share: float, trials: float) -> tuple[float, float]:
    middle = (share + _Z**2 / (2 * trials)) / (1 + _Z**2 / trials)
    half = _Z / (1 + _Z**2 / trials) * math.sqrt(share * (1 - share) / trials + _Z**2 / (4 * trials**2))
    return max(0.0, middle - half), min(1.0, middle + half)
