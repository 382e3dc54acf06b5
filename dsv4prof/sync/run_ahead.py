"""What a wait takes from the host's lead over the device: behind it the host starts from nothing."""

from __future__ import annotations

import msgspec

from dsv4prof.sync.launches import Launches
from dsv4prof.trace.index import RankIndex


class RunAhead(msgspec.Struct, frozen=True):
    """The lead of the last launch before a wait and of the first one after it, nanoseconds."""

    before_ns: int
    after_ns: int

    @property
    def lost_ns(self) -> int:
        return max(0, self.before_ns - self.after_ns)


def run_ahead(rank: RankIndex, launches: Launches, first: int, last: int) -> RunAhead | None:
    """The lead round the runtime calls `first` to `last` of one thread; None where the trace lacks a launch.

    A copy that is queued first and waited for by the next call is the last launch before the wait; one that waits by
    itself is not.
    """
    start, end = rank.slices[first], rank.slices[last]
    before = launches.before(start.track, start.start_ns)
    after = launches.after(end.track, end.end_ns)
    if before is None or after is None:
        return None
    return RunAhead(before.lead_ns, after.lead_ns)
