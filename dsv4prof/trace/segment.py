"""One rank's events, read again and written as its plan says; nothing of it stays in memory but a block."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dsv4prof.trace.clocks import correct
from dsv4prof.trace.columns import BINDS_ENCLOSING, EVENT, HAS_ID, Block, Ints, OutBlock, Places, SegmentEncoder
from dsv4prof.trace.planning import RankPlan
from dsv4prof.trace.ranks import RankStream
from dsv4prof.trace.survey import Layout

_FLOW = np.zeros(256, bool)
_FLOW[[ord("s"), ord("t"), ord("f")]] = True


class Clock:
    """A rank's times on the merged trace's axis: its base, its clock's correction, the common origin."""

    def __init__(self, rank: RankPlan, origin_ns: int, clock_origin_ns: int) -> None:
        self._base = rank.base_ns
        self._fit = rank.clock
        self._origin = origin_ns
        self._clock_origin = clock_origin_ns
        self._fixed = rank.applied or not (rank.clock.offset_ns or rank.clock.drift_ppm)

    def at(self, times: Ints) -> Ints:
        """ns of the file -> ns since the merged trace's origin."""
        if self._fixed:
            return times + (self._base - self._origin)
        return correct(times + self._base, self._fit, self._clock_origin) - self._origin

    def keeps(self, same_base: bool) -> bool:
        """Whether absolute times stay as they are."""
        return self._fixed and same_base and not self._origin

    def spans(self, start: Ints, dur: Ints) -> tuple[Ints, Ints]:
        """Starts and durations; ends are mapped themselves, so that what nested still nests."""
        if self._fixed:
            return self.at(start), dur
        begin = self.at(start)
        return begin, self.at(start + dur) - begin


class SegmentWriter:
    """Writes one rank through an encoder; `take` gets the pieces in order."""

    def __init__(self, rank: RankPlan, layout: Layout, clock: Clock, encoder: SegmentEncoder) -> None:
        self._layout = layout
        self._clock = clock
        self._encoder = encoder
        self._flow_base = rank.flow_base
        self._points = [point for point in rank.arrows if layout.candidate_place[point.candidate] >= 0]
        self._count = 0

    def write(self, stream: RankStream, take: Callable[[bytes], None]) -> None:
        """Raises what the stream raises."""
        take(self._encoder.begin())
        for block in stream.blocks():
            take(self._encoder.block(self._out(*self._chosen(block))))
        if len(self._layout.flows):
            take(self._encoder.block(self._flows()))
        if self._points:
            take(self._encoder.block(self._collective_arrows()))
        take(self._encoder.end())

    def _chosen(self, block: Block) -> tuple[Block, Places]:
        """The events of a block that are written, and their rows in the merged trace."""
        layout, rows = self._layout, block.rows
        first, last = self._count, self._count + len(rows)
        self._count = last
        place = layout.base_place[rows["track"]]
        keep = ~_FLOW[rows["ph"]]
        low, high = np.searchsorted(layout.moved, [first, last])
        place[layout.moved[low:high] - first] = layout.moved_place[low:high]
        low, high = np.searchsorted(layout.skipped, [first, last])
        keep[layout.skipped[low:high] - first] = False
        if keep.all():
            return block, place
        return Block(block.text, rows[keep]), place[keep]

    def _out(self, block: Block, place: Places) -> OutBlock:
        start, dur = self._clock.spans(block.rows["ts"], block.rows["dur"])
        return OutBlock(
            block.text,
            block.rows,
            np.ascontiguousarray(start),
            np.ascontiguousarray(dur),
            np.ascontiguousarray(place, np.int32),
            np.zeros(len(block.rows), np.int64),
        )

    def _collective_arrows(self) -> OutBlock:
        layout = self._layout
        at = np.array([point.candidate for point in self._points])
        rows = np.array(layout.candidates[at], EVENT)
        rows["ph"] = [ord(point.ph) for point in self._points]
        rows["flags"] = HAS_ID | BINDS_ENCLOSING
        rows["dur"] = rows["args_at"] = rows["args_len"] = 0
        return OutBlock(
            b"",
            rows,
            np.ascontiguousarray(self._clock.at(rows["ts"])),
            np.zeros(len(rows), np.int64),
            np.ascontiguousarray(layout.candidate_place[at], np.int32),
            np.array([point.number for point in self._points], np.int64),
        )

    def _flows(self) -> OutBlock:
        layout = self._layout
        rows = np.array(layout.flows, EVENT)
        # No viewer shows the arguments of an arrow's end, and their text is gone.
        rows["args_at"] = rows["args_len"] = 0
        return OutBlock(
            b"",
            rows,
            np.ascontiguousarray(self._clock.at(rows["ts"])),
            np.zeros(len(rows), np.int64),
            np.ascontiguousarray(layout.flow_place, np.int32),
            np.ascontiguousarray(layout.flow_number + self._flow_base),
        )
