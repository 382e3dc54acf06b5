"""What Perfetto's importer would drop or count as an error in a Chrome JSON file, predicted without it.

The importer closes slices by time on each (pid, tid) and drops one that overlaps without nesting; it keys flows by
(id, category, name); it takes only integer pids and flow ids. Checked against trace processor v52.
"""

from __future__ import annotations

from decimal import Decimal
from math import isfinite
from operator import itemgetter
from pathlib import Path

import msgspec

from dsv4prof.errors import InputError
from dsv4prof.trace.counters import numeric
from dsv4prof.trace.load import HINT_NOT_A_TRACE, paused_gc, read_text
from dsv4prof.trace.wire import NOT_JSON, WireEvent, decode_events, split_document

Key = int | str


class CheckResult(msgspec.Struct, frozen=True):
    """Counts for one file. `slices_in` are its X events, `slices_out` those that a viewer would show."""

    slices_in: int
    slices_out: int
    overlapping: int
    without_duration: int
    negative_times: int
    duplicate_flows: int
    invalid_flow_ids: int
    flow_ends_without_start: int
    string_pids: int
    negative_pids: int
    negative_tids: int
    malformed: int
    odd_counters: int

    @property
    def ok(self) -> bool:
        """Whether everything in the file would be shown, with no error counted."""
        faults = msgspec.structs.asdict(self)
        del faults["slices_in"], faults["slices_out"]
        return self.slices_in == self.slices_out and not any(faults.values())


def check_file(path: str | Path) -> CheckResult:
    """Predict the import of a Chrome JSON file (.json or .json.gz). Raises InputError when it is not one."""
    try:
        with paused_gc():
            raw = split_document(read_text(Path(path))).get("traceEvents")
            if raw is None:
                raise InputError(f"{path} is not a trace: it has no traceEvents", hint=HINT_NOT_A_TRACE)
            events, malformed = decode_events(raw)
            return check_events(events, malformed)
    except NOT_JSON as error:
        raise InputError(f"{path} is not valid JSON: {error}", hint=HINT_NOT_A_TRACE) from error


def check_events(events: list[WireEvent], malformed: int = 0) -> CheckResult:
    """The same for decoded events in file order."""
    spans: dict[tuple[Key, Key], list[tuple[int, int]]] = {}
    slices = without_duration = negative = 0
    for event in events:
        if event.ph == "M":
            continue
        at, dur = _importer_ns(event.ts), _importer_ns(event.dur)
        early = at is None or at < 0
        negative += early
        if event.ph == "X":
            slices += 1
            without_duration += dur is None
            if at is not None and dur is not None and not early:
                spans.setdefault((event.pid, _importer_tid(event)), []).append((at, at + dur))
    overlapping = sum(_overlaps(track) for track in spans.values())
    pids = {event.pid for event in events}
    duplicate, invalid, orphans = _flow_faults(events)
    return CheckResult(
        slices_in=slices,
        slices_out=sum(len(track) for track in spans.values()) - overlapping,
        overlapping=overlapping,
        without_duration=without_duration,
        negative_times=negative,
        duplicate_flows=duplicate,
        invalid_flow_ids=invalid,
        flow_ends_without_start=orphans,
        string_pids=sum(isinstance(pid, str) for pid in pids),
        negative_pids=sum(isinstance(pid, int) and not 0 <= pid < 2**32 for pid in pids),
        negative_tids=len({(event.pid, event.tid) for event in events if _importer_tid(event) != event.tid}),
        malformed=malformed,
        odd_counters=sum(event.ph == "C" and numeric(event.args)[1] > 0 for event in events),
    )


def _importer_tid(event: WireEvent) -> Key:
    """The importer puts a thread whose number is negative or over 32 bits on the row of the process's main thread."""
    tid = event.tid
    return event.pid if isinstance(tid, int) and not 0 <= tid < 2**32 else tid


def _importer_ns(value: Decimal | None) -> int | None:
    """As the importer reads a time: integers exactly, else a double of microseconds, which is coarse at epoch scale."""
    if value is None or not value.is_finite():
        return None
    number = float(value)
    if not isfinite(number):
        return None
    return int(value) * 1000 if number.is_integer() else round(number * 1000.0)


def _overlaps(spans: list[tuple[int, int]]) -> int:
    """Slices that do not nest, in order of time, file order among equal times; a dropped one closes nothing."""
    spans.sort(key=lambda span: span[0])
    dropped = 0
    stack: list[int] = []
    for start, end in spans:
        while stack and stack[-1] <= start:
            stack.pop()
        if stack and end > stack[-1]:
            dropped += 1
        else:
            stack.append(end)
    return dropped


def _flow_faults(events: list[WireEvent]) -> tuple[int, int, int]:
    """(starts whose key is already open, ids that are no integers, ends without an earlier start)."""
    timed = [(at, e) for e in events if e.ph in ("s", "t", "f") and (at := _importer_ns(e.ts)) is not None]
    timed.sort(key=itemgetter(0))
    open_keys: set[tuple[int, str, str]] = set()
    duplicate = invalid = orphans = 0
    for _, point in timed:
        if not isinstance(point.id, int):
            invalid += 1
            continue
        key = (point.id, point.cat, point.name)
        if point.ph != "s":
            orphans += key not in open_keys
        elif key in open_keys:
            duplicate += 1
        else:
            open_keys.add(key)
    return duplicate, invalid, orphans
