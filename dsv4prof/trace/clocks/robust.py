"""Lines and centres of noisy measurements of which some are wrong, and some known to be less certain than others.

`reach` is what a measurement may be off by beside the common noise, as a standard deviation in the unit of y. The
common noise is judged together with it, so that where it is large all measurements count alike.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

# Huber's constant: 95 % of the efficiency of least squares where the noise is normal.
_HUBER = 1.345
_MAD_TO_SIGMA = 1.4826
# Measurements this many sigma off are mistakes (of matching, or of a clock that stepped), not noise.
_OUTLIER = 6.0
_ROUNDS = 12
_STEADY = 0.05


class Line(NamedTuple):
    """y = level + slope * (t - at); `sigma` is the noise of one y, and the errors are standard errors."""

    at: float
    level: float
    slope: float
    level_error: float
    slope_error: float
    sigma: float

    def value(self, t: Floats) -> Floats:
        return self.level + self.slope * (t - self.at)


def spread(y: Floats) -> float:
    """The median distance from the median, scaled to a sigma."""
    return float(_MAD_TO_SIGMA * np.median(np.abs(y - np.median(y)))) if len(y) else 0.0


def centre(y: Floats, floor: float, reach: Floats) -> tuple[float, float]:
    """Huber's centre of y and its standard error; `floor` is the least noise believed."""
    level = _weighted_median(y, 1.0 / np.hypot(floor, reach))
    sigma = max(spread(y), floor)
    weights = np.ones(len(y))
    for _ in range(_ROUNDS):
        weights, sigma = _weights(y - level, sigma, floor, reach)
        before, level = level, float(np.sum(weights * y) / np.sum(weights))
        if abs(level - before) < _STEADY * floor:
            break
    return level, sigma_of(y - level, weights, floor) / float(np.sqrt(np.sum(weights)))


def line(t: Floats, y: Floats, floor: float, reach: Floats) -> Line:
    """Huber's line through (t, y), begun from a slope that some wrong points cannot move. Needs 3 points or more."""
    slope = _first_slope(t, y)
    at = float(t.mean())
    level = _weighted_median(y - slope * (t - at), 1.0 / np.hypot(floor, reach))
    sigma = max(spread(y - level - slope * (t - at)), floor)
    weights = np.ones(len(y))
    for _ in range(_ROUNDS):
        rest = y - level - slope * (t - at)
        weights, sigma = _weights(rest, sigma, floor, reach)
        total = float(np.sum(weights))
        centre_t = float(np.sum(weights * t) / total)
        centre_y = float(np.sum(weights * y) / total)
        lever = float(np.sum(weights * (t - centre_t) ** 2))
        before, slope = slope, float(np.sum(weights * (t - centre_t) * (y - centre_y)) / lever) if lever > 0 else 0.0
        moved = abs(centre_y - level - slope * (centre_t - at))
        at, level = centre_t, centre_y
        # Steps far below the errors change nothing that is told.
        if moved < _STEADY * floor and abs(slope - before) * lever**0.5 < _STEADY * floor:
            break
    sigma = sigma_of(y - level - slope * (t - at), weights, floor)
    total, lever = float(np.sum(weights)), float(np.sum(weights * (t - at) ** 2))
    slope_error = sigma / lever**0.5 if lever > 0 else float("inf")
    return Line(at, level, slope, sigma / total**0.5, slope_error, sigma)


def sigma_of(rest: Floats, weights: Floats, floor: float) -> float:
    """The noise of what remains, by weighted squares; never under `floor`."""
    used = max(float(np.sum(weights)) - 2.0, 1.0)
    return max(float(np.sqrt(np.sum(weights * rest**2) / used)), floor)


def _weights(rest: Floats, sigma: float, floor: float, reach: Floats) -> tuple[Floats, float]:
    """What each point counts, and the common noise, judged anew with each point's own uncertainty taken out."""
    less = np.hypot(sigma, reach) / sigma
    sigma = max(float(_MAD_TO_SIGMA * np.median(np.abs(rest / less))), floor)
    less = np.hypot(sigma, reach) / sigma
    size = np.abs(rest) / (sigma * less)
    weights = _HUBER / np.maximum(size, _HUBER)
    kept = size <= _OUTLIER
    return (np.where(kept, weights, 0.0) if kept.sum() >= 3 else weights) / less**2, sigma


def _weighted_median(y: Floats, weights: Floats) -> float:
    order = np.argsort(y, kind="stable")
    reached = np.cumsum(weights[order])
    return float(y[order][np.searchsorted(reached, reached[-1] / 2)])


def _first_slope(t: Floats, y: Floats) -> float:
    """The median slope between the points of the first and of the second half, in step (half of Theil and Sen's)."""
    order = np.argsort(t, kind="stable")
    half = len(t) // 2
    early, late = order[:half], order[-half:]
    apart = t[late] - t[early]
    usable = apart > 0
    return float(np.median((y[late] - y[early])[usable] / apart[usable])) if usable.any() else 0.0
