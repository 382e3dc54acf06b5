"""How long the device had nothing to do after the host had waited for it: what removing the wait could win."""

from __future__ import annotations

from bisect import bisect_right
from functools import cached_property
from itertools import pairwise
from statistics import median

from dsv4prof.sync.launches import Launches
from dsv4prof.trace.index import RankIndex


class IdleAfter:
    """Device idle time from the last work that was waited for to the next work launched by the same thread."""

    def __init__(self, rank: RankIndex, launches: Launches) -> None:
        self._rank, self._launches = rank, launches

    def after(self, index: int) -> int | None:
        """Nanoseconds after the runtime call `index`, less the usual gap between two operations; None if unknown."""
        call = self._rank.slices[index]
        launch = self._launches.after(call.track, call.end_ns)
        if launch is None:
            return None
        following = launch.work_ns
        ends = self._ends
        place = bisect_right(ends, call.end_ns) - 1
        # Clocks of host and device differ a little: the call's own copy may seem to end after the call.
        own = self._rank.gpu_by_correlation.get(self._rank.correlation(index) or 0, ())
        waited = [self._rank.slices[each].end_ns for each in own] + ([ends[place]] if place >= 0 else [])
        if not waited:
            return None
        last = max(waited)
        idle = (following - last) - self._busy_between(last, following)
        return max(0, idle - self._usual_gap)

    @cached_property
    def _busy(self) -> list[tuple[int, int]]:
        """Times in which any stream of the device worked, merged."""
        merged: list[tuple[int, int]] = []
        for index in self._rank.gpu_ops:
            event = self._rank.slices[index]
            if merged and event.start_ns <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(merged[-1][1], event.end_ns))
            else:
                merged.append((event.start_ns, event.end_ns))
        return merged

    @cached_property
    def _ends(self) -> list[int]:
        return sorted(self._rank.slices[index].end_ns for index in self._rank.gpu_ops)

    @cached_property
    def _usual_gap(self) -> int:
        gaps = [after[0] - before[1] for before, after in pairwise(self._busy)]
        return round(median(gaps)) if gaps else 0

    def _busy_between(self, low: int, high: int) -> int:
        starts = self._busy_starts
        place = max(0, bisect_right(starts, low) - 1)
        total = 0
        while place < len(self._busy) and self._busy[place][0] < high:
            start, end = self._busy[place]
            total += max(0, min(end, high) - max(start, low))
            place += 1
        return total

    @cached_property
    def _busy_starts(self) -> list[int]:
        return [start for start, _ in self._busy]
