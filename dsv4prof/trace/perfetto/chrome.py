"""Records of a Perfetto file -> events in canonical JSON text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from dsv4prof.trace.canonical import canonical
from dsv4prof.trace.perfetto.guessing import OTHER_STAGE, STAGES, category_of
from dsv4prof.trace.perfetto.pairing import Paired, pair
from dsv4prof.trace.perfetto.places import Place, Places
from dsv4prof.trace.perfetto.records import Record, StageRecord, is_edge
from dsv4prof.trace.perfetto.schema import Kind

if TYPE_CHECKING:
    from dsv4prof.trace.perfetto.reader import PftraceContent

_SECOND = 1_000_000_000
_USUAL = "ac2g"
_BRANCH_SHIFT = 48
_RENAMED = {"device id": "device", "context id": "context", "stream id": "stream"}


class ChromeEvents:
    """Events by kind; `notes` grows as they are made."""

    def __init__(self, content: PftraceContent) -> None:
        self.notes = content.notes
        self._content = content
        self._places = Places(content.tracks, content.own)
        self.metadata: dict[str, Any] = {}
        self._flow_names: dict[int, tuple[str, str, bool]] = {}
        for note in content.own:
            self.metadata.update(note.get("metadata", {}))
            for category, name, marked, ids in note.get("flows", ()):
                self._flow_names.update(dict.fromkeys(ids, (category, name, marked)))
        if "baseTimeNanoseconds" not in self.metadata:
            self.metadata["baseTimeNanoseconds"] = self._earliest() // _SECOND * _SECOND
        self._base = int(self.metadata["baseTimeNanoseconds"])
        self._flows: dict[int, list[tuple[int, Place, bool]]] = {}
        self._launches: dict[int, tuple[int, Place]] = {}
        self._guessed = 0

    def events(self) -> Iterator[bytes]:
        """All of them: descriptions, slices, points, arrows."""
        for what, (pid, tid), args in self._places.described():
            yield canonical("M", what, "", (pid, tid), 0, args=msgspec.json.encode(args))
        for records in self._content.records.values():
            yield from self._of_sequence(records)
        for stage in self._content.stages:
            yield self._stage(stage)
        for at_ns, gpu, name, value in self._content.gpu_counters:
            values = msgspec.json.encode({name: value})
            yield canonical("C", name, "", (f"GPU {gpu} Counters", 0), at_ns - self._base, args=values)
        yield from self._arrows()
        if self._guessed:
            self.notes.append(f"{self._guessed:,} slices have no category in the file: it was told by their arguments")

    def _earliest(self) -> int:
        times = [record.at_ns for records in self._content.records.values() for record in records]
        times += [stage.at_ns for stage in self._content.stages]
        times += [sample[0] for sample in self._content.gpu_counters]
        return min(times, default=0)

    def _of_sequence(self, records: list[Record]) -> Iterator[bytes]:
        extras = self._places.extras
        spans = {uuid for uuid, content in extras.items() if content[0] == "async"}
        edges = [record for record in records if is_edge(record) and record.track not in spans]
        slices, unended, unbegun = pair(edges)
        for count, what in ((unended, "begins of slices have no end"), (unbegun, "ends of slices have no begin")):
            if count:
                self.notes.append(f"{count:,} {what} and were left out")
        for each in slices:
            yield self._slice(each)
        for record in records:
            if record.track in spans:
                yield self._span(record, extras[record.track])
            elif record.kind == Kind.INSTANT:
                yield self._instant(record, extras.get(record.track))
        yield from self._counters([record for record in records if record.kind == Kind.COUNTER])

    def _slice(self, each: Paired) -> bytes:
        begin = each.begin
        place = self._places[begin.track]
        category = begin.category
        if not category and not self._content.own:
            category = category_of(begin.name, msgspec.json.decode(each.args) if each.args else {})
            self._guessed += 1
        for flow in begin.flows:
            self._flows.setdefault(flow, []).append((begin.at_ns, place, False))
        for flow in begin.flow_ends:
            self._flows.setdefault(flow, []).append((begin.at_ns, place, True))
        for correlation in begin.launches:
            self._launches.setdefault(correlation, (begin.at_ns, place))
        return canonical(
            "X",
            begin.name,
            category,
            place,
            begin.at_ns - self._base,
            dur_ns=each.end_ns - begin.at_ns,
            args=each.args or None,
        )

    def _span(self, record: Record, extra: list[Any]) -> bytes:
        """A point of an asynchronous span: extra is [kind, pid, tid, category, id, name]."""
        ph = {Kind.BEGIN: "b", Kind.END: "e"}.get(record.kind, "n")
        _, pid, tid, category, identity, name = extra
        at = record.at_ns - self._base
        return canonical(
            ph, name, category, (pid, tid), at, id=identity if identity != "" else None, args=record.args or None
        )

    def _instant(self, record: Record, extra: list[Any] | None) -> bytes:
        scope = extra[3] if extra is not None and extra[0] == "instant" else "t"
        return canonical(
            "i",
            record.name,
            record.category,
            self._places[record.track],
            record.at_ns - self._base,
            scope=scope,
            args=record.args or None,
        )

    def _counters(self, records: list[Record]) -> Iterator[bytes]:
        """Series of one counter at one time are one event in JSON."""
        made: dict[tuple[str, str, Place, int], list[dict[str, float | int]]] = {}
        for record in records:
            extra = self._places.extras.get(record.track)
            if extra is not None and extra[0] == "counter":
                name, series = extra[3], extra[4]
            else:
                name = series = self._places.name(record.track) or record.name
            key = (name, record.category, self._places[record.track], record.at_ns)
            events = made.setdefault(key, [{}])
            if series in events[-1]:
                events.append({})
            events[-1][series] = record.value
        for (name, category, place, at_ns), events in made.items():
            for values in events:
                yield canonical("C", name, category, place, at_ns - self._base, args=msgspec.json.encode(values))

    def _stage(self, stage: StageRecord) -> bytes:
        digits = "".join(filter(str.isdigit, stage.queue))
        args = {_RENAMED.get(key, key): value for key, value in stage.args.items()}
        stream = args.get("stream")
        place = (stage.gpu, stream if isinstance(stream, int) else int(digits or 0))
        if stage.correlation:
            args.setdefault("correlation", stage.correlation)
            launch = self._launches.get(stage.correlation)
            if launch is not None and STAGES.get(stage.stage) != "gpu_user_annotation":
                own = self._flows.setdefault(stage.correlation, [(*launch, False)])
                own.append((stage.at_ns, place, True))
        return canonical(
            "X",
            stage.name,
            STAGES.get(stage.stage, OTHER_STAGE),
            place,
            stage.at_ns - self._base,
            dur_ns=stage.dur_ns,
            args=msgspec.json.encode(args) if args else None,
        )

    def _arrows(self) -> Iterator[bytes]:
        """A flow's slices by time: the first is its start, a last or terminating one an end, others between."""
        own = bool(self._content.own)
        branches: dict[int, list[tuple[int, Place, bool]]] = {}
        for flow, points in self._flows.items():
            base = flow & (1 << _BRANCH_SHIFT) - 1 if own else flow
            if base != flow:
                # Only the end is new; the start is a point of the arrow that it branches from.
                branches.setdefault(base, []).append(max(points, key=lambda point: (point[2], point[0])))
        for flow, points in self._flows.items():
            if own and flow >> _BRANCH_SHIFT:
                continue
            category, name, marked = self._flow_names.get(flow, (_USUAL, _USUAL, False))
            ordered = sorted([*points, *branches.get(flow, ())], key=lambda point: (point[2], point[0]))
            for number, (at_ns, place, ends) in enumerate(ordered):
                last = number == len(ordered) - 1
                ph = "s" if not number else "f" if ends or last else "t"
                binding = "e" if ph == "f" or marked else None
                yield canonical(ph, name, category, place, at_ns - self._base, id=flow, binding=binding)
