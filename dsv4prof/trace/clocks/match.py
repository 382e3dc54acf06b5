"""One number for each collective of all ranks: equal numbers are one and the same collective.

Where the writer tells a group's own count, that is the answer; else order and pattern, one group at a time. A group
that the trace does not name (kernels in graphs) may stand for several: its ranks are gathered by whose patterns agree.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dsv4prof.trace.clocks.collect import RankCollectives
from dsv4prof.trace.clocks.pairs import LEAST, Ints, holds, pair
from dsv4prof.trace.clocks.robust import Floats, line

# How many sets of ranks, the nearest first, a rank is compared with: by count, and by pattern, which costs more.
_COUNTS = 64
_PATTERNS = 3
# So many collectives of a kind show how steady it is; a kind strays whose median is off by so many of the steadiest
# one's sigmas, and by more than the ends of a collective differ by between GPUs.
_LEAST_OF_KIND = 8
_STRAYS, _STRAYS_NS = 6.0, 1500.0


class Matches(NamedTuple):
    """Every matched collective, one row a rank that took part, by event: equal `event` is one collective.

    `rank` is a place in the list of ranks, `row` one in that rank's rows. `end` and `start` are ns since `origin_ns`
    on the rank's own clock. `group` counts sets of ranks whose collectives were matched with each other.
    """

    origin_ns: int
    rank: Ints
    row: Ints
    event: Ints
    group: Ints
    start: Floats
    end: Floats


class _Part(NamedTuple):
    """One rank's share of a group: places in its rows, ends since the origin, kinds, counts, names."""

    rank: int
    rows: Ints
    end: Floats
    kind: Ints
    seq: Ints
    # What each kernel is called; empty where the trace names the group, which is then proof enough.
    label: Ints


def match(ranks: list[RankCollectives], origin_ns: int) -> Matches:
    """Number the collectives of all ranks; those that only one rank shows are left out."""
    taken: list[tuple[Ints, Ints, Ints, Ints]] = []
    first_event, group = 0, 0
    for parts in _groups(ranks, origin_ns):
        for gathered in _gather(parts):
            for part, events in gathered:
                seen = events >= 0
                rows = part.rows[seen]
                number = np.full(len(rows), group, dtype=np.int64)
                place = np.full(len(rows), part.rank, dtype=np.int64)
                taken.append((place, rows, events[seen] + first_event, number))
            first_event += 1 + max((int(events.max(initial=-1)) for _, events in gathered), default=-1)
            group += 1
    if not taken:
        nothing = np.zeros(0, dtype=np.int64)
        return Matches(origin_ns, nothing, nothing, nothing, nothing, nothing.astype(float), nothing.astype(float))
    rank, row, event, groups = (np.concatenate([one[at] for one in taken]) for at in range(4))
    return _finish(ranks, origin_ns, rank, row, event, groups)


def _finish(ranks: list[RankCollectives], origin_ns: int, rank: Ints, row: Ints, event: Ints, group: Ints) -> Matches:
    _, event, sizes = np.unique(event, return_inverse=True, return_counts=True)
    shared = sizes[event] > 1
    rank, row, event, group = rank[shared], row[shared], event[shared], group[shared]
    _, event = np.unique(event, return_inverse=True)
    order = np.lexsort((rank, event))
    rank, row, event, group = rank[order], row[order], event[order].astype(np.int64), group[order]
    offsets = np.concatenate([[0], np.cumsum([len(one.rows) for one in ranks])])
    where = offsets[rank] + row
    start = np.concatenate([one.rows["start"] for one in ranks])[where] - origin_ns
    end = np.concatenate([one.rows["end"] for one in ranks])[where] - origin_ns
    return Matches(origin_ns, rank, row, event, group, start.astype(float), end.astype(float))


def _groups(ranks: list[RankCollectives], origin_ns: int) -> Iterator[list[_Part]]:
    """The ranks' shares of each group in turn; those with a count apart from those without."""
    names = sorted({name for one in ranks for name in one.groups})
    kinds: dict[str, int] = {}
    labels: dict[str, int] = {}
    parts: dict[tuple[int, bool], list[_Part]] = {}
    places = {name: at for at, name in enumerate(names)}
    for at, one in enumerate(ranks):
        numbers = np.array([kinds.setdefault(key, len(kinds)) for key in one.keys], dtype=np.int64)
        called = [key.partition("|")[0] for key in one.keys]
        label = np.array([labels.setdefault(name, len(labels)) for name in called], dtype=np.int64)
        for local, name in enumerate(one.groups):
            of_group = one.rows["group"] == local
            for counted in (True, False):
                rows = np.flatnonzero(of_group & ((one.rows["seq"] >= 0) == counted))
                if not len(rows):
                    continue
                mine = one.rows[rows]
                end = (mine["end"] - origin_ns).astype(float)
                calls = np.zeros(0, np.int64) if name else label[mine["key"]]
                part = _Part(at, rows, end, numbers[mine["key"]], mine["seq"].astype(np.int64), calls)
                parts.setdefault((places[name], counted), []).append(part)
    for key in sorted(parts):
        yield parts[key]


def _gather(parts: list[_Part]) -> list[list[tuple[_Part, Ints]]]:
    """Sets of shares whose patterns agree, each share with the numbers of its collectives (-1: none).

    A set's numbers are those of its longest member's collectives, so that a cut member costs the others nothing.
    """
    sets: list[list[tuple[_Part, Ints]]] = []
    # The longest first; the order of the ranks decides between equals.
    for part in sorted(parts, key=lambda one: (-len(one.rows), one.rank)):
        home = _home(sets, part)
        if home is None:
            sets.append([(part, np.arange(len(part.rows), dtype=np.int64))])
    return sets


def _home(sets: list[list[tuple[_Part, Ints]]], part: _Part) -> list[tuple[_Part, Ints]] | None:
    """The set that this share belongs to, with the share put into it; None when it agrees with none."""
    near = sorted(sets, key=lambda members: min(abs(members[at][0].rank - part.rank) for at in (0, -1)))[:_COUNTS]
    home = next(((members, pairs) for members in near if (pairs := _counted(members[0][0], part)) is not None), None)
    if home is None:
        slow = [(members, _by_pattern(members[0][0], part)) for members in near[:_PATTERNS]]
        found = [(members, pairs) for members, pairs in slow if pairs is not None]
        home = max(found, key=lambda one: len(one[1][0])) if found else None
    if home is None:
        return None
    members, (theirs, mine) = home
    kept = shared_kinds(members[0][0].end[theirs], part.end[mine], part.label[mine] if len(part.label) else None)
    theirs, mine = theirs[kept], mine[kept]
    events = np.full(len(part.rows), -1, dtype=np.int64)
    events[mine] = theirs
    members.append((part, events))
    return members


def shared_kinds(end_a: Floats, end_b: Floats, label: Ints | None) -> npt.NDArray[np.bool_]:
    """Which pairs to believe where the trace names no group: those of the kernels that keep their distance best.

    Replicas run one program, so that their own collectives pair as well as the ones that they share; but nothing makes
    them end together. A kernel that strays from the steadiest one's line is not the same collective on both ranks.
    """
    every = np.ones(len(end_a), dtype=bool)
    if label is None or len(end_a) == 0:
        return every
    away = end_b - end_a
    lines = {}
    for one in np.unique(label).tolist():
        rows = label == one
        if rows.sum() >= _LEAST_OF_KIND:
            lines[one] = line(end_b[rows], away[rows], 1.0, np.zeros(int(rows.sum())))
    if len(lines) < 2:
        return every
    best = min(lines.values(), key=lambda fit: fit.sigma)
    limit = max(_STRAYS * best.sigma, _STRAYS_NS)
    rest = np.abs(away - best.value(end_b))
    for one in lines:
        rows = label == one
        if float(np.median(rest[rows])) > limit:
            every[rows] = False
    return every


def _by_pattern(first: _Part, part: _Part) -> tuple[Ints, Ints] | None:
    # A group's own count leaves no choice: where it does not fit, the ranks are in groups of one name.
    return None if first.seq[0] >= 0 else pair(first.end, first.kind, part.end, part.kind)


def _counted(first: _Part, part: _Part) -> tuple[Ints, Ints] | None:
    """The pairs by count or by order alone, where the ends bear them out."""
    if first.seq[0] >= 0:
        _, theirs, mine = np.intersect1d(first.seq, part.seq, return_indices=True)
        order = np.argsort(theirs, kind="stable")
        theirs, mine = theirs[order], mine[order]
    elif len(first.rows) == len(part.rows) and np.array_equal(first.kind, part.kind):
        theirs = mine = np.arange(len(part.rows), dtype=np.int64)
    else:
        return None
    few = first.seq[0] >= 0 and 0 < len(theirs) < LEAST
    return (theirs, mine) if few or holds(first.end[theirs], part.end[mine]) else None
