"""When a thread launched device work and when that work began: what idle time and run-ahead are reckoned from."""

from __future__ import annotations

from bisect import bisect_left
from functools import cached_property

import msgspec

from dsv4prof.model.event import Track
from dsv4prof.trace.index import RankIndex


class Launch(msgspec.Struct, frozen=True):
    """A runtime call that started device work, and when its first work began; nanoseconds."""

    start_ns: int
    end_ns: int
    work_ns: int

    @property
    def lead_ns(self) -> int:
        """How far the host was ahead of the device: 0 when the work began at once."""
        return max(0, self.work_ns - self.end_ns)


class Launches:
    """The launches of each thread of one rank, in order of time."""

    def __init__(self, rank: RankIndex) -> None:
        self._rank = rank

    def after(self, track: Track, at_ns: int) -> Launch | None:
        """The first launch of a thread that began at `at_ns` or later."""
        starts, launches = self._by_track.get(track, ([], []))
        place = bisect_left(starts, at_ns)
        return launches[place] if place < len(launches) else None

    def before(self, track: Track, at_ns: int) -> Launch | None:
        """The last launch of a thread that began before `at_ns`."""
        starts, launches = self._by_track.get(track, ([], []))
        place = bisect_left(starts, at_ns) - 1
        return launches[place] if place >= 0 else None

    @cached_property
    def _by_track(self) -> dict[Track, tuple[list[int], list[Launch]]]:
        rank = self._rank
        table: dict[Track, list[Launch]] = {}
        for index in rank.runtime_calls:
            work = rank.gpu_by_correlation.get(rank.correlation(index) or 0)
            if work:
                call = rank.slices[index]
                launch = Launch(call.start_ns, call.end_ns, rank.slices[work[0]].start_ns)
                table.setdefault(call.track, []).append(launch)
        for launches in table.values():
            launches.sort(key=lambda launch: (launch.start_ns, launch.work_ns))
        return {track: ([launch.start_ns for launch in launches], launches) for track, launches in table.items()}
