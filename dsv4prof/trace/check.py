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
import numpy as np

from dsv4prof.errors import InputError
from dsv4prof.trace.chunks import DamagedError, chunks
from dsv4prof.trace.columns import ID_IS_WORD, Block, Ints, Scanner
from dsv4prof.trace.core import scanner, split_lanes
from dsv4prof.trace.counters import numeric
from dsv4prof.trace.document import Document, Odd
from dsv4prof.trace.whole import HINT_NOT_A_TRACE, paused_gc, read_text
from dsv4prof.trace.wire import NOT_JSON, WireEvent, decode_event, decode_events, split_document

Key = int | str
_X = ord("X")
_FLOWS = [ord(ph) for ph in "stf"]


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
    """Predict the import of a Chrome JSON file, plain or compressed. Raises InputError when it is not one.

    Memory: some 40 bytes an event.
    """
    try:
        check = _Check()
        document = Document(chunks(path), check.scanner)
        for part in document.blocks():
            check.take(part)
        if document.cut is not None:
            raise InputError(f"{path} is not valid JSON: {document.cut}", hint=HINT_NOT_A_TRACE)
        return check.result()
    except DamagedError as damage:
        return _check_whole(Path(path), damage)


def _check_whole(path: Path, damage: DamagedError) -> CheckResult:
    """A document with several lists of events is still one; text that is no JSON is not."""
    try:
        with paused_gc():
            raw = split_document(read_text(path)).get("traceEvents")
            if raw is None:
                raise InputError(f"{path} is not a trace: it has no traceEvents", hint=HINT_NOT_A_TRACE)
            events, malformed = decode_events(raw)
            return check_events(events, malformed)
    except NOT_JSON as error:
        raise InputError(f"{path} is not valid JSON: {error}", hint=HINT_NOT_A_TRACE) from damage


def check_events(events: list[WireEvent], malformed: int = 0) -> CheckResult:
    """The same for decoded events in file order."""
    check = _Check()
    check.malformed = malformed
    for event in events:
        check.one(event)
    return check.result()


class _Check:
    """Counts over a file; only times, tracks and arrow ends are kept."""

    def __init__(self) -> None:
        self.scanner: Scanner = scanner()
        self.malformed = 0
        self._slices = self._without_duration = self._negative = self._odd_counters = 0
        self._tracks: dict[tuple[Key, Key], int] = {}
        self._pids: set[Key] = set()
        self._moved: set[tuple[Key, Key]] = set()
        self._known: list[int] = []
        self._spans: list[tuple[Ints, Ints, Ints]] = []
        self._few: list[tuple[int, int, int]] = []
        self._flows: list[tuple[int, str, Key | None, str, str]] = []

    def take(self, part: Block | Odd) -> None:
        if isinstance(part, Block):
            self._flush()
            self._block(part)
            return
        event = decode_event(part.text)
        if event is None:
            self.malformed += 1
        else:
            self.one(event)

    def one(self, event: WireEvent) -> None:
        """An event by itself, as a reader that is not the scanner sees it."""
        if event.ph == "M":
            self._track(event.pid, event.tid)
            return
        at, dur = _importer_ns(event.ts), _importer_ns(event.dur)
        early = at is None or at < 0
        self._negative += early
        track = self._track(event.pid, event.tid)
        if event.ph == "X":
            self._slices += 1
            self._without_duration += dur is None
            if at is not None and dur is not None and not early:
                self._few.append((at, at + dur, track))
        elif event.ph in ("s", "t", "f"):
            if at is not None:
                self._flows.append((at, event.ph, event.id, event.cat, event.name))
        elif event.ph == "C":
            self._odd_counters += numeric(event.args)[1] > 0

    def _track(self, pid: Key, tid: Key) -> int:
        self._pids.add(pid)
        seen = _importer_tid(pid, tid)
        if seen != tid:
            self._moved.add((pid, tid))
        return self._tracks.setdefault((pid, seen), len(self._tracks))

    def _block(self, block: Block) -> None:
        words, rows = self.scanner.words, block.rows
        for track in self.scanner.tracks[len(self._known) :]:
            self._known.append(self._track(track.pid, track.tid))
        is_slice = rows["ph"] == _X
        slices = rows[is_slice]
        self._slices += len(slices)
        at, dur = _importer_array(slices["ts"]), _importer_array(slices["dur"])
        self._spans.append((at, at + dur, np.array(self._known, np.int64)[slices["track"]]))
        for row in rows[np.isin(rows["ph"], _FLOWS)]:
            number = words[row["id"]] if row["flags"] & ID_IS_WORD else int(row["id"])
            at_ns = int(_importer_array(row["ts"].reshape(1))[0])
            self._flows.append((at_ns, chr(row["ph"]), number, words[row["cat"]], words[row["name"]]))

    def _flush(self) -> None:
        """Events taken by themselves keep their place in the file's order."""
        if self._few:
            start, end, track = (np.array(part, np.int64) for part in zip(*self._few, strict=True))
            self._spans.append((start, end, track))
            self._few = []

    def result(self) -> CheckResult:
        self._flush()
        kept, overlapping = self._overlaps()
        duplicate, invalid, orphans = _flow_faults(self._flows)
        return CheckResult(
            slices_in=self._slices,
            slices_out=kept - overlapping,
            overlapping=overlapping,
            without_duration=self._without_duration,
            negative_times=self._negative,
            duplicate_flows=duplicate,
            invalid_flow_ids=invalid,
            flow_ends_without_start=orphans,
            string_pids=sum(isinstance(pid, str) for pid in self._pids),
            negative_pids=sum(isinstance(pid, int) and not 0 <= pid < 2**32 for pid in self._pids),
            negative_tids=len(self._moved),
            malformed=self.malformed,
            odd_counters=self._odd_counters,
        )

    def _overlaps(self) -> tuple[int, int]:
        """(slices with a time, those that do not nest): by time, longer ones first, then in file order; a dropped one
        closes nothing, which is what a first lane does.
        """
        if not self._spans:
            return 0, 0
        start, end, track = (np.concatenate(part) for part in zip(*self._spans, strict=True))
        order = np.lexsort((start - end, start, track))
        track = track[order]
        firsts = np.flatnonzero(np.r_[True, track[1:] != track[:-1]]) if len(track) else np.zeros(0, np.int64)
        lanes = split_lanes(start[order], end[order], np.r_[firsts, len(track)].astype(np.int64))
        return len(track), int((lanes > 1).sum())


def _importer_array(times: Ints) -> Ints:
    """`_importer_ns` of exact times, ns in, ns out."""
    if len(times) and int(times.max()) >= 2**53:
        return np.array([_importer_ns(Decimal(int(ns)) / 1000) for ns in times], np.int64)
    whole = times % 1000 == 0
    return np.where(whole, times, np.rint(times / 1000.0 * 1000.0).astype(np.int64))


def _importer_tid(pid: Key, tid: Key) -> Key:
    """The importer puts a thread whose number is negative or over 32 bits on the row of the process's main thread."""
    return pid if isinstance(tid, int) and not 0 <= tid < 2**32 else tid


def _importer_ns(value: Decimal | None) -> int | None:
    """As the importer reads a time: integers exactly, else a double of microseconds, which is coarse at epoch scale."""
    if value is None or not value.is_finite():
        return None
    number = float(value)
    if not isfinite(number):
        return None
    return int(value) * 1000 if number.is_integer() else round(number * 1000.0)


def _flow_faults(points: list[tuple[int, str, Key | None, str, str]]) -> tuple[int, int, int]:
    """(starts whose key is already open, ids that are no integers, ends without an earlier start)."""
    open_keys: set[tuple[int, str, str]] = set()
    duplicate = invalid = orphans = 0
    for _, ph, number, category, name in sorted(points, key=itemgetter(0)):
        if not isinstance(number, int):
            invalid += 1
            continue
        key = (number, category, name)
        if ph != "s":
            orphans += key not in open_keys
        elif key in open_keys:
            duplicate += 1
        else:
            open_keys.add(key)
    return duplicate, invalid, orphans
