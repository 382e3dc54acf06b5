"""Where launches have no device record, the device looks idle and may have been busy: tell how many have one."""

from __future__ import annotations

import msgspec

from dsv4prof.trace.index import RankIndex
from dsv4prof.trace.vendor import is_launch

LEAST = 0.99
"""The share of launches with a record below which idle time means nothing."""
_CAPTURE = {"BeginCapture": 1, "EndCapture": -1}


class Coverage(msgspec.Struct, frozen=True):
    """Launches of one rank that name their work, and how many of them have a record of it.

    `head` is how many come before the first that has one. What was launched into a graph being captured is no launch.
    """

    rank: int
    launches: int
    recorded: int
    head: int = 0

    @property
    def complete(self) -> bool:
        return self.recorded >= LEAST * self.launches

    @property
    def text(self) -> str:
        share = 100 * self.recorded / self.launches if self.launches else 100.0
        said = (
            f"rank {self.rank}: {self.recorded:,} of {self.launches:,} launches ({share:.0f} %) have a device record: "
            "busy time is a lower bound, and how long the device was idle is unknown"
        )
        if self.head and self.head == self.launches - self.recorded:
            said += f"; it is the first {self.head:,} that have none: a warm-up step before the window records them"
        return said


def coverage_of(rank: RankIndex) -> Coverage:
    """Count them; a call without a correlation tells nothing of its work and is not counted."""
    recorded = [number in rank.gpu_by_correlation for number in _launches(rank)]
    head = recorded.index(True) if True in recorded else len(recorded)
    return Coverage(rank.rank, len(recorded), sum(recorded), head)


def _launches(rank: RankIndex) -> list[int]:
    """Correlations of the launches, in order of time."""
    found: list[tuple[int, int]] = []
    calls = set(rank.runtime_calls)
    for indexes in rank.tracks.values():
        captures = 0
        for index in indexes:
            if index not in calls:
                continue
            call = rank.slices[index]
            captures += next((step for word, step in _CAPTURE.items() if call.name.endswith(word)), 0)
            number = rank.correlation(index)
            if captures <= 0 and number and is_launch(call.name):
                found.append((call.start_ns, number))
    return [number for _, number in sorted(found)]
