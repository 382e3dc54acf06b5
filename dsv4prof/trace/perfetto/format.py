"""A merged trace as a .pftrace file: what stands before the ranks' segments, and who writes them."""

from __future__ import annotations

import msgspec

from dsv4prof.trace.columns import SegmentHead
from dsv4prof.trace.perfetto.encoder import PftraceEncoder
from dsv4prof.trace.perfetto.packets import clock_snapshot, note
from dsv4prof.trace.planning import MergePlan
from dsv4prof.trace.write import merged_metadata


class PftraceFormat:
    """A format for `Merge.write`. Perfetto opens the file as it is and compressed by gzip, told by content."""

    separator = b""

    def head(self, plan: MergePlan) -> bytes:
        return file_head(plan.origin_ns, {"dsv4prof": msgspec.to_builtins(merged_metadata(plan))})

    def tail(self) -> bytes:
        return b""

    def encoder(self, head: SegmentHead) -> PftraceEncoder:
        return PftraceEncoder(head)


def file_head(origin_ns: int, metadata: dict[str, object]) -> bytes:
    """The first packets of a file: that its times are the wall clock's, and metadata for `read_pftrace`."""
    top = {"schemaVersion": 1, "displayTimeUnit": "ms", "baseTimeNanoseconds": origin_ns, **metadata}
    return clock_snapshot(origin_ns) + note({"metadata": top})
