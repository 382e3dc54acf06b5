"""The profiler of a hung rank cannot be stopped without waiting for the device: its record still has the CPU part.

Steps and phases with their times, and every launch, as a trace that any viewer opens. A launch ends where the next
record of its thread begins, which bounds its time from above; of the device nothing is known.
"""

from __future__ import annotations

import json
from typing import Any

from dsv4prof.faultrecord.layout import Kind
from dsv4prof.faultrecord.reader import FaultRecord, Launch

_ENDS = {Kind.STEP_END: Kind.STEP, Kind.PHASE_END: Kind.PHASE}


def cpu_part(record: FaultRecord) -> bytes:
    """The record as a JSON trace, times on the wall clock in microseconds."""
    pid = int(record.facts.get("pid", 0))
    events: list[dict[str, Any]] = []
    open_parts: list[Launch] = []
    records = record.launches
    last_ns = records[-1].time_ns if records else 0
    main = next((each.thread for each in records if each.kind.launches), 0)
    following = _next_times(records)
    for each in records:
        if each.kind in (Kind.STEP, Kind.PHASE):
            open_parts.append(each)
        elif each.kind in _ENDS:
            wanted = _ENDS[each.kind]
            # A part that an exception left has no end of its own: it ends with the one around it.
            while any(part.kind is wanted for part in open_parts):
                part = open_parts.pop()
                events.append(_event(record, pid, main, _name(part), part.time_ns, each.time_ns))
                if part.kind is wanted:
                    break
        elif each.kind.launches:
            end = following.get(each.number, last_ns)
            event = _event(record, pid, each.thread, each.name, each.time_ns, end)
            event["cat"] = "cpu_op"
            event["args"] = {"launch": each.number, "step": each.step, "stream": each.stream}
            events.append(event)
    events += [_event(record, pid, main, f"{_name(part)} (not ended)", part.time_ns, last_ns) for part in open_parts]
    rank = {"rank": record.rank, "world_size": record.facts.get("world_size")}
    return json.dumps({"traceEvents": events, "distributedInfo": rank, "cpu_part_of_fault_record": True}).encode()


def _name(part: Launch) -> str:
    return f"step {part.step} {part.kernel}".strip() if part.kind is Kind.STEP else f"phase {part.kernel}"


def _next_times(records: tuple[Launch, ...]) -> dict[int, int]:
    """By launch, when the next record of its thread was written; steps and phases are the main thread's."""
    found: dict[int, int] = {}
    before: dict[int, int] = {}
    for each in records:
        if each.thread in before:
            found[before[each.thread]] = each.time_ns
        if each.kind.launches:
            before[each.thread] = each.number
    return found


def _event(record: FaultRecord, pid: int, thread: int, name: str, start_ns: int, end_ns: int) -> dict[str, Any]:
    start = record.wall_ns(start_ns)
    # Whole numbers of nanoseconds: a float at this scale loses a quarter of a microsecond.
    return {
        "ph": "X", "cat": "user_annotation", "name": name, "pid": pid, "tid": thread % (1 << 31),
        "ts": start // 1000, "dur": max(0, end_ns - start_ns) // 1000,
    }  # fmt: skip
