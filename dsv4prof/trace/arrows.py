"""Arrows between slices, in columns: numbers that are unique in a rank, no end without its start, none in the void.

Perfetto keys a flow by (id, category, name) and not by process, and ids restart in every file: without new ids the
arrows of one rank end in another. Kineto also writes an end for runtime calls that launch nothing.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dsv4prof.model.trace import Dropped
from dsv4prof.trace.columns import BINDS_ENCLOSING, ID_IS_WORD, Ints, Rows

FLOW_BASE_BITS = 32
_ORDER = np.full(256, 3, np.int8)
_ORDER[[ord("s"), ord("t"), ord("f")]] = (0, 1, 2)
_START, _END = ord("s"), ord("f")


def flow_base(rank: int) -> int:
    """What to add to a rank's own numbers (1, 2, ...); exact in a double up to rank 2**21."""
    return rank << FLOW_BASE_BITS


class Arrows(NamedTuple):
    """`chosen` are places in the given rows, ordered by number, then time; `numbers` are theirs, from 1."""

    chosen: Ints
    numbers: Ints
    dropped: list[Dropped]


def number_arrows(points: Rows, words: list[str], tied: np.ndarray) -> Arrows:
    """Number the arrows of one rank's flow points (rows of phase s, t, f in file order).

    One start is followed by its ends; a second start under one key begins an arrow of its own. `tied` says for each
    point whether a slice is there that it can belong to. What fits no arrow is counted.
    """
    first = _number(points, words, np.arange(len(points)))
    loose = ~tied[first.chosen]
    if not loose.any():
        return first
    again = _number(points, words, np.sort(first.chosen[~loose]))
    lost = Dropped(int(loose.sum()), "arrow end outside of every slice", harmless=True)
    return Arrows(again.chosen, again.numbers, [*first.dropped, lost, *again.dropped])


def _number(points: Rows, words: list[str], inside: Ints) -> Arrows:
    """The same for some of the points, wherever they are."""
    if not len(inside):
        return Arrows(np.zeros(0, np.int64), np.zeros(0, np.int64), [])
    lost: dict[str, int] = {}
    own = points[inside]
    order = _by_key(own, words)
    sorted_points, keys = own[order.places], order.keys
    starts = sorted_points["ph"] == _START
    group_first = np.r_[True, keys[1:] != keys[:-1]] if len(keys) else np.zeros(0, bool)
    arrow = np.cumsum(starts)
    first_places = np.flatnonzero(group_first)
    before = np.repeat((arrow - starts)[first_places], np.diff(np.r_[first_places, len(keys)]))
    early = arrow == before
    has_start = np.repeat(np.maximum.reduceat(starts, first_places), np.diff(np.r_[first_places, len(keys)])) if len(
        keys
    ) else np.zeros(0, bool)
    _count(lost, "arrow end before its start", early & has_start)
    _count(lost, "arrow end without a start", early & ~has_start)
    sizes = np.bincount(arrow[~early], minlength=int(arrow[-1]) + 1 if len(arrow) else 1)
    lonely = ~early & (sizes[arrow] == 1)
    _count(lost, "arrow start without an end", lonely)
    kept = np.flatnonzero(~early & ~lonely)
    places = inside[order.places[kept]]
    # Numbers follow the starts through the file, whatever the keys were.
    own_arrow = arrow[kept]
    begins = np.flatnonzero(sorted_points["ph"][kept] == _START)
    by_start = np.argsort(places[begins], kind="stable")
    number_of = np.zeros(int(arrow[-1]) + 1 if len(arrow) else 1, np.int64)
    number_of[own_arrow[begins][by_start]] = np.arange(1, len(begins) + 1)
    numbers = number_of[own_arrow]
    final = np.argsort(numbers, kind="stable")
    dropped = [Dropped(count, reason, harmless=True) for reason, count in sorted(lost.items())]
    return Arrows(places[final], numbers[final], dropped)


class _Order(NamedTuple):
    places: Ints
    keys: Ints


def _by_key(points: Rows, words: list[str]) -> _Order:
    """The order by key, time and phase, and a number for each key."""
    same = _same_word(words)
    keys = np.empty(len(points), [("id", "<i8"), ("word", "?"), ("name", "<i4"), ("cat", "<i4")])
    keys["word"] = (points["flags"] & ID_IS_WORD) != 0
    keys["id"] = points["id"]
    keys["id"][keys["word"]] = same[points["id"][keys["word"]]]
    keys["name"], keys["cat"] = same[points["name"]], same[points["cat"]]
    _, number = np.unique(keys, return_inverse=True)
    number = number.reshape(-1)
    places = np.lexsort((_ORDER[points["ph"]], points["ts"], number))
    return _Order(places, number[places])


def _same_word(words: list[str]) -> Ints:
    """The first place of each word: two spellings of one string are two words."""
    first: dict[str, int] = {}
    return np.array([first.setdefault(word, place) for place, word in enumerate(words)] or [0], np.int64)


def _count(lost: dict[str, int], reason: str, mask: np.ndarray) -> None:
    if count := int(mask.sum()):
        lost[reason] = count


def is_tied(points: Rows, innermost: Ints) -> np.ndarray:
    """Whether importers find a slice for each point: a start needs one around it, an end that binds to it as well."""
    binds = (points["ph"] == _START) | ((points["flags"] & BINDS_ENCLOSING) != 0)
    return ~binds | (innermost >= 0)
