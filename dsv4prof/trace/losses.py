"""What a rank's file no longer holds: a trace that lost a kernel is not whole, even when its text reads well."""

from __future__ import annotations

from dsv4prof.model.trace import RankTrace


def losses(trace: RankTrace) -> list[str]:
    """A sentence for everything that was cut, mended, contradictory or left out; empty for a whole rank.

    What says nothing about the recording (arrow ends that Kineto writes for calls that launch nothing) is not in it.
    """
    cut = [] if trace.complete or trace.notes else ["the file ends early"]
    left_out = [f"{d.count:,} left out: {d.reason}" for d in trace.dropped if d.count and not d.harmless]
    return [*cut, *trace.notes, *left_out]
