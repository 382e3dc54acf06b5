"""Arrows between the parts that ranks had in one collective, from the first that came to the last."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from dsv4prof.model.trace import ClockFit
from dsv4prof.trace.arrows import flow_base
from dsv4prof.trace.clocks import Alignment, Arrival, RankCollectives, arrows, correct


class ArrowPoint(NamedTuple):
    """One end: the candidate slice at whose start it is, its phase letter, its number in the merged trace."""

    candidate: int
    ph: str
    number: int


def collective_arrows(
    ranks: list[RankCollectives], aligned: Alignment, *, applied: bool = False
) -> dict[int, list[ArrowPoint]]:
    """The points of each rank. Numbers lie above those of all ranks' own arrows. `applied`: on one clock already."""
    fits = {fit.rank: None if applied else fit for fit in aligned.clocks}
    first = flow_base(max((one.rank for one in ranks), default=0) + 1)
    found: dict[int, list[ArrowPoint]] = {one.rank: [] for one in ranks}
    for number, parts in enumerate(_several(arrows(ranks, aligned))):
        came = sorted(parts, key=lambda part: (_time(part, fits, aligned.origin_ns), part.rank))
        for place, part in enumerate(came):
            ph = "s" if not place else "f" if place == len(came) - 1 else "t"
            found[part.rank].append(ArrowPoint(part.ordinal, ph, first + number))
    return found


def _several(groups: Iterable[list[Arrival]]) -> Iterable[list[Arrival]]:
    return (parts for parts in groups if len(parts) > 1)


def _time(part: Arrival, fits: dict[int, ClockFit | None], origin_ns: int) -> int:
    fit = fits[part.rank]
    return part.start_ns if fit is None else int(correct(np.array([part.start_ns]), fit, origin_ns)[0])
