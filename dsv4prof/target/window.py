"""Which steps of a workload to record, once its steps are known: mostly decode, with the prefill that led there."""

from __future__ import annotations

from collections.abc import Sequence

from dsv4prof.errors import UsageError
from dsv4prof.recorder.plan import RecordPlan

# Decode is what serving spends its time on; one step in six of prefill shows both and how they meet.
_PREFILL_SHARE = 6


def place_window(plan: RecordPlan, kinds: Sequence[str]) -> int:
    """How many steps to wait (warm-up not included), for a workload whose steps are of these `kinds`, in order.

    A given wait is kept; the workload is served again when the window reaches beyond its end. Otherwise the window
    goes where its share of prefill steps is nearest to one in six, the earliest such place.
    Raises UsageError for a wait that is longer than the workload.
    """
    if plan.wait is not None:
        if plan.wait + plan.warmup >= len(kinds):
            raise UsageError(
                f"the recording waits {plan.wait + plan.warmup} steps, and the workload has {len(kinds)}",
                hint="wait for fewer steps, or serve more requests or tokens",
            )
        return plan.wait
    active = plan.active if plan.active is not None else len(kinds)
    wanted = max(1, active // _PREFILL_SHARE)
    starts = range(plan.warmup, max(plan.warmup, len(kinds) - active) + 1)

    def distance(start: int) -> tuple[bool, int]:
        window = kinds[start : start + active]
        prefill = window.count("prefill")
        return prefill in (0, len(window)), abs(prefill - wanted)

    return min(starts, key=distance) - plan.warmup
