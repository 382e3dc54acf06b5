"""The base time of a file that was cut before it: many writers put `baseTimeNanoseconds` behind the events.

Kineto floors the wall clock to a period of three months, so ranks of one run have one base, unless the run began at the
turn of a quarter. A cut rank without a base can therefore borrow it from another; without it, it would lie in 1970.
"""

from __future__ import annotations

import msgspec

from dsv4prof.model.trace import RankTrace

# Times that need a base are below the period; times since 1970 are far above it.
_PERIOD_NS = 200 * 86_400 * 10**9


def lend_bases(traces: list[RankTrace]) -> list[RankTrace]:
    """The same ranks; cut ones that lost their base get the one that the whole ranks share, with a note."""
    lenders = [trace for trace in traces if trace.base_ns]
    bases = {trace.base_ns for trace in lenders}
    if len(bases) != 1:
        return traces
    (base_ns,) = bases
    return [_moved(trace, base_ns, lenders[0]) if _needs(trace) else trace for trace in traces]


def _needs(trace: RankTrace) -> bool:
    return not trace.base_ns and not trace.complete and all(s.start_ns < _PERIOD_NS for s in trace.slices)


def _moved(trace: RankTrace, base_ns: int, lender: RankTrace) -> RankTrace:
    replace = msgspec.structs.replace
    note = f"its base time was behind the cut; that of rank {lender.coordinates.rank} was taken"
    return replace(
        trace,
        base_ns=base_ns,
        slices=[replace(s, start_ns=s.start_ns + base_ns) for s in trace.slices],
        instants=[replace(p, at_ns=p.at_ns + base_ns) for p in trace.instants],
        counters=[replace(p, at_ns=p.at_ns + base_ns) for p in trace.counters],
        flows=[replace(p, at_ns=p.at_ns + base_ns) for p in trace.flows],
        asyncs=[replace(p, at_ns=p.at_ns + base_ns) for p in trace.asyncs],
        notes=[*trace.notes, note],
    )
