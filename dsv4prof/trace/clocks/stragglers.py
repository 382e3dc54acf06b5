"""The rank that the others wait for: the last to come, again and again, by more than chance and noise make of it.

A collective cannot begin its work before its last rank comes. So what one rank costs the others is the time between the
second-last arrival and its own. One long wait (a rank that started late, a first call that compiled) names nobody:
time is cut into blocks, and a straggler leads most of them.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from dsv4prof.trace.clocks.pairs import Ints
from dsv4prof.trace.clocks.robust import Floats

# What it takes to be named, each judged in the median block: of all waiting for last ranks, of the blocks, of the time.
_OF_WAITING = 0.5
_OF_BLOCKS = 0.7
_OF_TIME = 0.03
# Its lead, against how far apart the others come: of eight ranks without a straggler, the last leads by a sixth.
_OF_SPREAD = 0.3
# A rank this far out of the others' range is none of them, so that less of the time is enough.
_FAR_OUT, _OF_TIME_FAR_OUT = 4.0, 0.003
_LEAST_FAR_OUT = 4
# Who is looked at: those that cost most, among whom one long wait may hide the straggler.
_SUSPECTS = 4
# Waits under a tenth of the long ones are the rest of the noise.
_SHORT = 0.1
# With fewer collectives nothing can come back often enough.
_LEAST = 10
_FEW = 40
_FEW_BLOCKS, _MANY_BLOCKS = 4, 8


class Straggler(msgspec.Struct, frozen=True):
    """A rank that others wait for. `late_ns` is how long they waited for it alone in the `collectives` that it held up;
    `share` is the part of the time that this takes in a typical stretch of the trace."""

    rank: int
    evidence: str
    late_ns: int
    collectives: int
    share: float


class _Arrivals(NamedTuple):
    """One row a collective, in order of time: who came last, how long after the next, how far apart the others came."""

    last: Ints
    cost: Floats
    spread: Floats
    at: Floats


def find_stragglers(rank: Ints, event: Ints, group: Ints, start: Floats, noise: float) -> list[Straggler]:
    """Who holds the others up, one at most for each set of ranks that communicate.

    The arrays have a row for each rank's part in a collective, in order of `event`; `start` is its begin on the common
    clock, `group` numbers sets of ranks, `rank` is the real rank; `noise` (ns) is what clocks and ends leave uncertain.
    """
    found: dict[int, Straggler] = {}
    for rows in _by_members(rank, group):
        worst = _worst(rank[rows], event[rows], start[rows], noise)
        if worst is not None and (worst.rank not in found or found[worst.rank].late_ns < worst.late_ns):
            found[worst.rank] = worst
    return [found[key] for key in sorted(found)]


def _worst(rank: Ints, event: Ints, start: Floats, noise: float) -> Straggler | None:
    """The straggler among ranks that communicate, judged by the collectives that it took part in: it may be cut."""
    every = _arrivals(rank, event, start)
    names, places = np.unique(every.last, return_inverse=True)
    if not len(names):
        return None
    cost = np.bincount(places, weights=every.cost)
    members = len(np.unique(rank))
    named = []
    for suspect in names[np.argsort(-cost, kind="stable")[:_SUSPECTS]]:
        within = np.zeros(int(event[-1]) + 1, dtype=bool)
        within[event[rank == suspect]] = True
        rows = within[event]
        one = _judge(int(suspect), _arrivals(rank[rows], event[rows], start[rows]), noise, members)
        if one is not None:
            named.append(one)
    return max(named, key=lambda one: one.share, default=None)


def _by_members(rank: Ints, group: Ints) -> list[Ints]:
    """Rows of groups that have the same ranks, together: kernels in graphs and eager ones of one group are apart."""
    order = np.argsort(group, kind="stable")
    cuts = np.flatnonzero(np.diff(group[order])) + 1
    sets: dict[bytes, list[Ints]] = {}
    for rows in np.split(order, cuts):
        if len(rows):
            sets.setdefault(np.unique(rank[rows]).tobytes(), []).append(rows)
    return [np.sort(np.concatenate(parts)) for parts in sets.values()]


def _arrivals(rank: Ints, event: Ints, start: Floats) -> _Arrivals:
    order = np.lexsort((start, event))
    rank, event, start = rank[order], event[order], start[order]
    final = np.flatnonzero(np.append(np.diff(event) != 0, True)) if len(event) else np.zeros(0, dtype=np.int64)
    begin = np.concatenate([[0], final[:-1] + 1]).astype(np.int64)
    shared = final > begin
    final, begin = final[shared], begin[shared]
    cost, spread = start[final] - start[final - 1], start[final - 1] - start[begin]
    time = np.argsort(start[final], kind="stable")
    return _Arrivals(rank[final][time], cost[time], spread[time], start[final][time])


def _judge(rank: int, arrivals: _Arrivals, noise: float, members: int) -> Straggler | None:
    if len(arrivals.at) < _LEAST or members < 2:
        return None
    material = np.flatnonzero(arrivals.cost > noise)
    if len(material) < _LEAST // 2:
        return None
    blocks = np.array_split(material, _MANY_BLOCKS if len(material) >= _FEW else _FEW_BLOCKS)
    led = sum(_leader(arrivals, block) == rank for block in blocks)
    if led < _OF_BLOCKS * len(blocks):
        return None
    own = [float(np.sum(arrivals.cost[block][arrivals.last[block] == rank])) for block in blocks]
    waiting = np.array(own) / [float(np.sum(arrivals.cost[block])) for block in blocks]
    time = np.array(own) / _durations(arrivals.at, blocks)
    mine = material[arrivals.last[material] == rank]
    mine = mine[arrivals.cost[mine] >= _SHORT * np.quantile(arrivals.cost[mine], 0.9)]
    # Of two ranks, one has no spread to be out of.
    apart = np.maximum(arrivals.spread[mine], 1.0)
    lead = float(np.median(arrivals.cost[mine] / apart)) if members > 2 else float("nan")
    share = float(np.median(time))
    long = share >= _OF_TIME and not lead < _OF_SPREAD
    far_out = members >= _LEAST_FAR_OUT and lead >= _FAR_OUT and share >= _OF_TIME_FAR_OUT
    if float(np.median(waiting)) < _OF_WAITING or not (long or far_out):
        return None
    return _straggler(rank, arrivals, mine, share)


def _leader(arrivals: _Arrivals, block: Ints) -> int:
    """Who cost the others most in a block."""
    names, places = np.unique(arrivals.last[block], return_inverse=True)
    return int(names[np.argmax(np.bincount(places, weights=arrivals.cost[block]))])


def _durations(at: Floats, blocks: list[npt.NDArray[np.int64]]) -> Floats:
    """How long each block takes, from the collective before it to its last one."""
    ends = np.array([at[block[-1]] for block in blocks])
    before = blocks[0][0] - 1
    first = at[before] if before >= 0 else at[0] - float(np.median(np.diff(at)))
    return np.maximum(np.diff(np.concatenate([[first], ends])), 1.0)


def _straggler(rank: int, arrivals: _Arrivals, mine: Ints, share: float) -> Straggler:
    late = float(np.sum(arrivals.cost[mine]))
    typical = float(np.median(arrivals.cost[mine])) / 1e3
    evidence = (
        f"rank {rank} was the last to reach {len(mine):,} of {len(arrivals.at):,} collectives, {typical:,.1f} us after "
        f"the next rank (median); the others wait for it alone {share:.1%} of the time"
    )
    return Straggler(rank, evidence, round(late), len(mine), share)
