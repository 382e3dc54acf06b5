"""Ranks of one machine share its clock, so they share a drift; offsets of a few microseconds remain between processes.

Host names say who shares a machine where they are there, but every cloud machine may be called the same, and many
writers name none. So the fitted clocks decide: one machine's ranks lie within microseconds and drift alike.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dsv4prof.trace.clocks.pairs import Ints
from dsv4prof.trace.clocks.robust import Floats, Line, centre

# Processes of one machine convert GPU times by themselves, and differ by microseconds; clocks of two machines that are
# set by network differ by hundreds.
_SAME_CLOCK_NS = 10e3
_SAME_DRIFT = 1e-6
# A rank's own offset must exceed what the ends of a collective differ by: the skew that is seen, or as much as a few
# hops between GPUs, which come always in one order and so look like an offset.
_HOPS_NS = 500.0
_SIGMA_TO_MEDIAN = 0.6745
_SURE = 5.0
# What is told of a clock must be this many standard errors from nothing. A drift known well is told anyway; one known
# no better than quartz differs from quartz is not told however large it seems.
_SIGNIFICANT = 3.0
_DRIFT_KNOWN, _DRIFT_VAGUE = 1e-6, 5e-6


class Clock(NamedTuple):
    """One rank's clock against the reference's: `level` ns at the origin, `drift` as a ratio (None: not told).

    `error` and `drift_error` are standard errors; `node` is the lowest place among the ranks that share its clock.
    """

    level: float
    drift: float | None
    error: float
    drift_error: float
    node: int


def share_clocks(
    members: list[int],
    lines: dict[int, Line],
    ends: dict[int, tuple[Floats, Floats, Floats]],
    hosts: list[str | None],
    floor: float,
) -> dict[int, Clock]:
    """The clocks of connected ranks, of which the first is the reference.

    `lines[r]` is rank r's own fit and `ends[r]` its ends, their times on the common clock, ns since the origin,
    and what each may be off by beside the noise.
    """
    middle = float(np.median([lines[rank].at for rank in members]))
    nodes = _nodes(members, lines, hosts, middle)
    slopes = {node[0]: _slope([lines[rank] for rank in node]) for node in nodes}
    skew = min(_SIGMA_TO_MEDIAN * float(np.median([lines[rank].sigma for rank in members])), _HOPS_NS)
    reference = members[0]
    own_slope, own_error = next(slopes[node[0]] for node in nodes if reference in node)
    found: dict[int, Clock] = {}
    for node in nodes:
        slope, slope_error = slopes[node[0]]
        home = reference in node
        drift, error = (0.0, 0.0) if home else (slope - own_slope, float(np.hypot(slope_error, own_error)))
        told = home or error <= _DRIFT_KNOWN or (error <= _DRIFT_VAGUE and abs(drift) > _SIGNIFICANT * error)
        rate = drift if told else 0.0
        levels = {}
        for rank in node:
            t, common, reach = ends[rank]
            levels[rank] = centre(t - rate * t - common - own_slope * (common - middle), floor, reach)
        for rank, (level, level_error) in _own_offsets(levels, skew).items():
            found[rank] = Clock(level, drift if told else None, level_error, error, node[0])
    zero = found[reference]
    return {rank: _against(clock, zero, same_node=clock.node == zero.node) for rank, clock in found.items()}


def _against(clock: Clock, zero: Clock, *, same_node: bool) -> Clock:
    level, error = clock.level - zero.level, float(np.hypot(clock.error, zero.error))
    if not same_node and not clock.drift and abs(level) <= _SIGNIFICANT * error:
        level = 0.0
    return clock._replace(level=level, error=error)


def _own_offsets(levels: dict[int, tuple[float, float]], skew: float) -> dict[int, tuple[float, float]]:
    """The node's offset for a rank whose own does not stand out from the noise of its collectives."""
    values = np.array([level for level, _ in levels.values()])
    errors = np.array([error for _, error in levels.values()])
    shared, shared_error = float(np.median(values)), float(np.median(errors))
    return {
        rank: (level, error) if abs(level - shared) > max(_SIGNIFICANT * error, skew) else (shared, shared_error)
        for rank, (level, error) in levels.items()
    }


def _slope(lines: list[Line]) -> tuple[float, float]:
    """The drift that several ranks agree on, each by what it knows; infinitely uncertain when none knows any."""
    weights = np.array([1.0 / max(one.slope_error, 1e-15) ** 2 for one in lines])
    total = float(weights.sum())
    if total <= 0:
        return 0.0, float("inf")
    return float(np.sum(weights * np.array([one.slope for one in lines])) / total), total**-0.5


def _nodes(members: list[int], lines: dict[int, Line], hosts: list[str | None], middle: float) -> list[list[int]]:
    """Sets of ranks that share a clock, each in ascending order: by host, then by offset, then by drift."""
    named: dict[str | None, list[int]] = {}
    for rank in members:
        named.setdefault(hosts[rank], []).append(rank)
    nodes: list[list[int]] = []
    for group in named.values():
        levels = np.array([float(lines[rank].value(np.array([middle]))[0]) for rank in group])
        errors = np.array(
            [np.hypot(one.level_error, one.slope_error * (middle - one.at)) for one in (lines[rank] for rank in group)]
        )
        for near in _split(levels, errors, _SAME_CLOCK_NS):
            ranks = [group[at] for at in near]
            slopes = np.array([lines[rank].slope for rank in ranks])
            slope_errors = np.array([lines[rank].slope_error for rank in ranks])
            nodes += [[ranks[at] for at in alike] for alike in _split(slopes, slope_errors, _SAME_DRIFT)]
    return sorted(sorted(node) for node in nodes)


def _split(values: Floats, errors: Floats, apart: float) -> list[Ints]:
    """Places of values that follow each other without a gap wider than `apart` and what the errors explain."""
    order = np.argsort(values, kind="stable")
    gaps = np.diff(values[order])
    unsure = _SURE * np.hypot(errors[order][1:], errors[order][:-1])
    cuts = np.flatnonzero(gaps > apart + unsure) + 1
    return [part.astype(np.int64) for part in np.split(order, cuts)]
