"""Where launches have no device record, the device looks idle and may have been busy: tell how many have one."""

from __future__ import annotations

import msgspec

from dsv4prof.trace.index import RankIndex
from dsv4prof.trace.vendor import is_launch

LEAST = 0.99
"""The share of launches with a record below which idle time means nothing."""


class Coverage(msgspec.Struct, frozen=True):
    """Launches of one rank that name their work, and how many of them have a record of it."""

    rank: int
    launches: int
    recorded: int

    @property
    def complete(self) -> bool:
        return self.recorded >= LEAST * self.launches

    @property
    def text(self) -> str:
        share = 100 * self.recorded / self.launches if self.launches else 100.0
        return (
            f"rank {self.rank}: {self.recorded:,} of {self.launches:,} launches ({share:.0f} %) have a device record "
            "that names them (the others were lost, or captured into a graph): how long the device was idle is unknown"
        )


def coverage_of(rank: RankIndex) -> Coverage:
    """Count them; a call without a correlation tells nothing of its work and is not counted."""
    numbers = [
        number
        for index in rank.runtime_calls
        if is_launch(rank.slices[index].name) and (number := rank.correlation(index))
    ]
    return Coverage(rank.rank, len(numbers), sum(number in rank.gpu_by_correlation for number in numbers))
