"""A first look at one rank: everything about it that must be known before its events can be written.

The summary is small and stays in memory for every rank; the layout, which grows with the rank, is kept in a file until
the rank is written.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from dsv4prof.errors import InputError
from dsv4prof.model.event import Instant, Slice, Track
from dsv4prof.model.trace import Dropped, MergedTrack, StepSpan, TrackInfo
from dsv4prof.trace.arrows import is_tied, number_arrows
from dsv4prof.trace.clocks import RankCollectives, collect, is_candidate
from dsv4prof.trace.columns import EVENT, Block, Ints, Places, Rows
from dsv4prof.trace.core import innermost, split_lanes
from dsv4prof.trace.markers import marks_window
from dsv4prof.trace.narrow import KEEP_ALL, RankNarrow
from dsv4prof.trace.ranks import RankFacts, RankStream
from dsv4prof.trace.rows import RankRows
from dsv4prof.trace.steps import find_steps
from dsv4prof.trace.vendor import GPU_TRACK_CATEGORIES, RANGE_CATEGORIES
from dsv4prof.trace.wire import MAX_NS

_X, _I, _C = ord("X"), ord("i"), ord("C")
_FLOWS = np.zeros(256, bool)
_FLOWS[[ord("s"), ord("t"), ord("f")]] = True
_SHIFT = 32


class Layout(NamedTuple):
    """How a rank's events are written. Ordinals count its events, in stream order, metadata events left out.

    `base_place` is each track's row, -1 for a track without events; `moved` ordinals go to `moved_place` instead;
    `skipped` ordinals are not written. `flows` are rows in the order in which they are written. `candidates` are the
    slices that the clocks looked at, with their rows, -1 where they are not written.
    """

    base_place: Places
    moved: Ints
    moved_place: Places
    skipped: Ints
    flows: Rows
    flow_place: Places
    flow_number: Ints
    candidates: Rows
    candidate_place: Places


class Survey(msgspec.Struct, frozen=True):
    """The summary of a rank. Times are absolute ns on the rank's own clock; `rows` have pids from 1 on."""

    facts: RankFacts
    rows: list[MergedTrack]
    counts: dict[str, int]
    first_ns: int | None
    last_ns: int
    markers: list[Instant]
    collectives: RankCollectives
    steps: list[StepSpan]

    @property
    def pid_count(self) -> int:
        return max((row.pid for row in self.rows), default=0)


def save(layout: Layout, path: Path) -> None:
    """Keep a layout for the writer."""
    path.write_bytes(pickle.dumps(tuple(layout), protocol=5))


def restore(path: Path) -> Layout:
    """A layout that `save` kept."""
    return Layout(*pickle.loads(path.read_bytes()))


def survey(stream: RankStream, narrow: RankNarrow = KEEP_ALL, *, with_steps: bool = False) -> tuple[Survey, Layout]:
    """Read a whole stream once. Memory: some 50 bytes an event.

    Raises what the stream raises.
    """
    view = _View(stream, narrow, with_steps)
    for block in stream.blocks():
        view.take(block)
    return view.close(stream.facts())


class _View:
    """Gathers columns over all blocks, and the few slices that clocks and steps ask for."""

    def __init__(self, stream: RankStream, narrow: RankNarrow, with_steps: bool) -> None:
        self._stream = stream
        self._narrow = narrow
        self._with_steps = with_steps
        self._count = 0
        self._slices: list[tuple[Ints, Ints, Ints, Places]] = []
        self._points: list[Rows] = []
        self._kept: dict[int, int] = {}
        self._used: set[int] = set()
        self._skipped: list[Ints] = []
        self._gpu_tracks: set[int] = set()
        self._first: int | None = None
        # Of what the rank itself did, without the profiler's own spans.
        self._began: int | None = None
        self._last = 0
        self._picked: list[tuple[int, tuple]] = []
        self._picked_rows: list[Rows] = []
        self._ranges: list[tuple[int, tuple]] = []
        self._markers: list[tuple] = []
        self._asked: dict[int, int] = {}
        self._gpu_words = np.zeros(0, bool)
        self._own_tracks = np.zeros(0, bool)

    def take(self, block: Block) -> None:
        rows = block.rows
        ordinals = np.arange(self._count, self._count + len(rows))
        self._count += len(rows)
        skip = self._narrow.skips(rows, self._stream.words)
        marks = self._take_markers(block)
        self._take_times(rows if not marks.any() else rows[~marks])
        skip |= marks
        if skip.any():
            self._skipped.append(ordinals[skip])
        kept = rows if not skip.any() else rows[~skip]
        places = ordinals if not skip.any() else ordinals[~skip]
        self._pick(block, rows, ordinals)
        if not len(kept):
            return
        phases, counts = np.unique(kept["ph"], return_counts=True)
        for ph, count in zip(phases.tolist(), counts.tolist(), strict=True):
            self._kept[ph] = self._kept.get(ph, 0) + count
        is_slice = kept["ph"] == _X
        slices = kept[is_slice]
        self._slices.append(
            (places[is_slice], slices["ts"].copy(), slices["dur"].copy(), slices["track"].copy())
        )
        flows = kept[_FLOWS[kept["ph"]]]
        if len(flows):
            self._points.append(flows)
        self._used.update(np.unique(kept["track"][~_FLOWS[kept["ph"]]]).tolist())
        own = slices["ts"][self._is_own(slices["track"])]
        if len(own):
            self._began = int(own.min()) if self._began is None else min(self._began, int(own.min()))
        self._gpu_tracks.update(np.unique(slices["track"][self._is_gpu(slices["cat"])]).tolist())

    def _take_times(self, rows: Rows) -> None:
        """When the rank's events began and ended, whatever is kept of them: a part stays on the axis of the whole."""
        if not len(rows):
            return
        first = int(rows["ts"].min())
        self._first = first if self._first is None else min(self._first, first)
        self._last = max(self._last, int((rows["ts"] + rows["dur"]).max()))

    def _is_own(self, tracks: Places) -> np.ndarray:
        known = self._stream.tracks
        if len(self._own_tracks) < len(known):
            self._own_tracks = np.array([isinstance(track.pid, int) for track in known], bool)
        return self._own_tracks[tracks]

    def _is_gpu(self, words: Places) -> np.ndarray:
        known = self._stream.words
        if len(self._gpu_words) < len(known):
            self._gpu_words = np.array([word in GPU_TRACK_CATEGORIES for word in known], bool)
        return self._gpu_words[words]

    def _take_markers(self, block: Block) -> np.ndarray:
        """Kineto's two marks of the window travel in the merged file's metadata: as rows they show nothing."""
        rows, words, tracks = block.rows, self._stream.words, self._stream.tracks
        maybe = (rows["ph"] == _I) & (rows["args_len"] == 0)
        for at in np.flatnonzero(maybe).tolist():
            row = rows[at]
            track = tracks[row["track"]]
            if marks_window(words[row["name"]], track):
                self._markers.append(
                    (words[row["name"]], words[row["cat"]], track, int(row["ts"]), chr(row["scope"]))
                )
            else:
                maybe[at] = False
        return maybe

    def _pick(self, block: Block, rows: Rows, ordinals: Ints) -> None:
        """The slices that the clocks or the steps need, whether they are written or not."""
        is_slice = np.flatnonzero(rows["ph"] == _X)
        pairs = rows["name"][is_slice].astype(np.int64) << _SHIFT | rows["cat"][is_slice]
        kinds, inverse = np.unique(pairs, return_inverse=True)
        wanted = np.array([self._kind(pair) for pair in kinds.tolist()], np.int8)[inverse.reshape(-1)]
        for at in is_slice[wanted > 0].tolist():
            row = rows[at]
            args = block.text[row["args_at"] : row["args_at"] + row["args_len"]]
            fact = (
                self._stream.words[row["name"]],
                self._stream.words[row["cat"]],
                self._stream.tracks[row["track"]],
                int(row["ts"]),
                int(row["dur"]),
                msgspec.Raw(args) if args else None,
            )
            kind = self._asked[int(row["name"]) << _SHIFT | int(row["cat"])]
            if kind & 1:
                self._picked.append((int(ordinals[at]), fact))
                self._picked_rows.append(rows[at : at + 1])
            if kind & 2:
                self._ranges.append((int(ordinals[at]), fact))

    def _kind(self, pair: int) -> int:
        kind = self._asked.get(pair)
        if kind is None:
            name, category = self._stream.words[pair >> _SHIFT], self._stream.words[pair & 0xFFFFFFFF]
            kind = int(is_candidate(name, category)) | 2 * (self._with_steps and category in RANGE_CATEGORIES)
            self._asked[pair] = kind
        return kind

    def close(self, facts: RankFacts) -> tuple[Survey, Layout]:
        base = facts.base_ns
        tracks = self._stream.tracks
        ordinal, start, dur, track = (
            np.concatenate(part) if self._slices else np.zeros(0, np.int64)
            for part in (zip(*self._slices, strict=True) if self._slices else [()] * 4)
        )
        self._slices = []
        # Two spellings of one name are two tracks of the scanner, and one row.
        first: dict[Track, int] = {}
        same = np.array([first.setdefault(each, place) for place, each in enumerate(tracks)] or [0], np.int32)
        track = same[track]
        order = np.lexsort((ordinal, -dur, start, track))
        spans = _Spans(ordinal[order], start[order], start[order] + dur[order], track[order].astype(np.int32))
        points = np.concatenate(self._points) if self._points else np.zeros(0, EVENT)
        points["track"] = same[points["track"]]
        inside = spans.innermost(points["track"], points["ts"])
        arrows = number_arrows(points, self._stream.words, is_tied(points, inside))
        flows = points[arrows.chosen]
        used = {int(same[place]) for place in self._used} | set(np.unique(flows["track"]).tolist())
        described = {info.track: info for info in facts.tracks}
        infos = [described.get(tracks[place]) or TrackInfo(tracks[place]) for place in sorted(used)]
        rows = RankRows(infos, {tracks[place].pid for place in self._gpu_tracks})
        base_place = np.array([rows.place.get(each, -1) for each in tracks] or [-1], np.int32)
        lanes = spans.lanes()
        lane_place = _lane_places(spans, lanes, base_place, rows)
        moved = np.flatnonzero(lanes > 1)
        by_ordinal = np.argsort(spans.ordinal[moved], kind="stable")
        moved = moved[by_ordinal]
        flow_inside = inside[arrows.chosen]
        flow_place = np.where(flow_inside >= 0, lane_place[flow_inside], base_place[flows["track"]]).astype(np.int32)
        layout = Layout(
            base_place=base_place,
            moved=spans.ordinal[moved],
            moved_place=lane_place[moved],
            skipped=np.concatenate(self._skipped) if self._skipped else np.zeros(0, np.int64),
            flows=flows,
            flow_place=flow_place,
            flow_number=arrows.numbers,
            candidates=np.concatenate(self._picked_rows) if self._picked_rows else np.zeros(0, EVENT),
            candidate_place=self._candidate_places(spans, lane_place),
        )
        return self._summary(facts, base, rows, layout, arrows.dropped), layout

    def _candidate_places(self, spans: _Spans, lane_place: Places) -> Places:
        wanted = np.array([ordinal for ordinal, _ in self._picked], np.int64)
        by_ordinal = np.argsort(spans.ordinal, kind="stable")
        at = np.searchsorted(spans.ordinal[by_ordinal], wanted)
        at = np.minimum(at, max(len(by_ordinal) - 1, 0))
        if not len(by_ordinal):
            return np.full(len(wanted), -1, np.int32)
        found = by_ordinal[at]
        return np.where(spans.ordinal[found] == wanted, lane_place[found], -1).astype(np.int32)

    def _summary(
        self, facts: RankFacts, base: int, rows: RankRows, layout: Layout, dropped: list[Dropped]
    ) -> Survey:
        count = self._kept
        counts = {
            "slices": count.get(_X, 0),
            "instants": count.get(_I, 0),
            "counters": count.get(_C, 0),
            "flows": len(layout.flows),
            "arrows": int((layout.flows["ph"] != ord("s")).sum()),
            # An importer makes a slice of each of these.
            "async_slices": sum(count.get(ord(ph), 0) for ph in "bn"),
            "asyncs": sum(count.get(ord(ph), 0) for ph in "bne"),
            "lanes": sum(row.lane > 1 for row in rows.rows),
            "moved": len(layout.moved),
        }
        rank = facts.coordinates.rank
        if self._last + base >= 2 * MAX_NS:
            raise InputError(f"{facts.source}: its times are none that a clock shows", hint="was it written by torch?")
        return Survey(
            facts=msgspec.structs.replace(facts, dropped=[*facts.dropped, *dropped]),
            rows=rows.rows,
            counts=counts,
            first_ns=None if self._first is None else self._first + base,
            last_ns=self._last + base,
            markers=[
                *facts.markers,
                *(Instant(name, category, track, at + base, scope)
                for name, category, track, at, scope in self._markers)
            ],
            collectives=collect(
                list(_slices(self._picked, base)),
                facts.coordinates,
                facts.metadata,
                start_ns=(self._began or self._first or 0) + base,
            ),
            steps=find_steps(list(_slices(self._ranges, base)), rank) if self._with_steps else [],
        )


def _slices(picked: Iterable[tuple[int, tuple]], base: int) -> Iterable[Slice]:
    for _, (name, category, track, ts, dur, args) in picked:
        yield Slice(name, category, track, ts + base, dur, args)


def _lane_places(spans: _Spans, lanes: Places, base_place: Places, rows: RankRows) -> Places:
    """The row of each span. Lanes get their rows in the order of the spans, so that equal input gives equal rows."""
    place = base_place[spans.track].copy()
    for at in np.flatnonzero(lanes > 1).tolist():
        place[at] = rows.lane(int(base_place[spans.track[at]]), int(lanes[at]))
    return place.astype(np.int32)


class _Spans:
    """The slices of a rank by track, then time, parents first."""

    def __init__(self, ordinal: Ints, start: Ints, end: Ints, track: Places) -> None:
        self.ordinal, self.start, self.end, self.track = ordinal, start, end, track
        firsts = np.flatnonzero(np.r_[True, track[1:] != track[:-1]]) if len(track) else np.zeros(0, np.int64)
        self._bounds = np.r_[firsts, len(track)].astype(np.int64)
        self._group = {int(track[first]): number for number, first in enumerate(firsts.tolist())}

    def lanes(self) -> Places:
        return split_lanes(self.start, self.end, self._bounds)

    def innermost(self, tracks: Places, times: Ints) -> Ints:
        """For each (track, time) the span that was opened last and is still open; -1 for none."""
        found = np.full(len(tracks), -1, np.int64)
        for track in np.unique(tracks).tolist():
            group = self._group.get(track)
            if group is None:
                continue
            low, high = int(self._bounds[group]), int(self._bounds[group + 1])
            mine = np.flatnonzero(tracks == track)
            mine = mine[np.argsort(times[mine], kind="stable")]
            inside = innermost(self.start[low:high], self.end[low:high], np.ascontiguousarray(times[mine]))
            found[mine] = np.where(inside >= 0, inside + low, -1)
        return found
