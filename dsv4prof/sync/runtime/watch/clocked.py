"""Whether a call waited for a device that is known to be busy until some time: who returns before it has not."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from dsv4prof.model.syncs import Kind, Observation
from dsv4prof.sync.runtime.watch.merging import Call

# Clocks of host and device differ, and a launch takes some time to begin.
_SLACK_NS = 500_000


def judged_by_time(calls: Sequence[Call], busy_until_ns: int) -> list[Observation]:
    """What all layers saw. Of a call that ended while the device was busy, each observation has `blocked_ns` 0, and
    the layer that measures says SUSPECT; the others keep what they said.
    """
    found: list[Observation] = []
    for call in calls:
        end_ns = _ended(call)
        free = end_ns is not None and end_ns < busy_until_ns - _SLACK_NS
        found += map(_free, call.observations) if free else call.observations
    return found


def _ended(call: Call) -> int | None:
    """When the call returned; None where no layer knows. The driver's own clock is the closest."""
    heard = [each for each in call.observations if each.blocked_ns is not None and each.start_ns]
    if heard:
        return max(each.start_ns + (each.blocked_ns or 0) for each in heard)
    return call.began_ns + call.span_ns if call.span_ns is not None else None


def _free(seen: Observation) -> Observation:
    if seen.blocked_ns is None:
        return msgspec.structs.replace(seen, blocked_ns=0)
    reason = f"{seen.op} had nothing to wait for"
    return msgspec.structs.replace(seen, kind=Kind.SUSPECT, reason=reason, blocked_ns=0)
