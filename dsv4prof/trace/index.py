"""What analyses ask a merged trace: what encloses a slice, which GPU work a call started, which steps there were.

One RankIndex a rank, built on first use; analyses never walk the raw lists by themselves.
"""

from __future__ import annotations

from bisect import bisect_right
from functools import cached_property

import msgspec

from dsv4prof.model.annotation import whole_number
from dsv4prof.model.event import Slice, Track
from dsv4prof.model.trace import MergedRank, MergedTrace, MergedTrack, StepSpan
from dsv4prof.trace.steps import find_steps
from dsv4prof.trace.vendor import GPU_CATEGORIES, RUNTIME_CATEGORIES


class _Correlated(msgspec.Struct):
    correlation: int | str | None = None


# Twice the depth of Python's own stack: more is damage, and a walk up for every read would never end.
MAX_CHAIN = 2000
_MAX_CORRELATION = 2**64
_CORRELATED = msgspec.json.Decoder(_Correlated)


def by_track(slices: list[Slice]) -> dict[Track, list[int]]:
    """Indexes of the slices of each track, ordered so that a parent comes before its children."""
    tracks: dict[Track, list[int]] = {}
    for index, slice_ in enumerate(slices):
        tracks.setdefault(slice_.track, []).append(index)
    for indexes in tracks.values():
        indexes.sort(key=lambda index: (slices[index].start_ns, -slices[index].dur_ns))
    return tracks


class TraceIndex:
    """All ranks of a merged trace. `index[rank]` is that rank's."""

    def __init__(self, merged: MergedTrace) -> None:
        self.merged = merged
        self._ranks = {rank.trace.coordinates.rank: RankIndex(rank) for rank in merged.ranks}

    def __getitem__(self, rank: int) -> RankIndex:
        return self._ranks[rank]

    @property
    def ranks(self) -> list[RankIndex]:
        return [self._ranks[rank] for rank in sorted(self._ranks)]

    @cached_property
    def has_gpu(self) -> bool:
        """Whether any rank recorded device work or a call to a device runtime."""
        return any(rank.has_gpu for rank in self.ranks)

    @cached_property
    def steps(self) -> list[StepSpan]:
        """Steps of all ranks, by rank, then time."""
        return [step for rank in self.ranks for step in rank.steps]


class RankIndex:
    """One rank's slices, by track, by correlation and by nesting. Slices are named by their position in `slices`."""

    def __init__(self, merged: MergedRank) -> None:
        self.merged = merged
        self.rank = merged.trace.coordinates.rank
        self.slices: list[Slice] = merged.trace.slices

    @cached_property
    def tracks(self) -> dict[Track, list[int]]:
        """Positions of the slices of each track, parents before children."""
        return by_track(self.slices)

    @cached_property
    def _opened_before(self) -> list[int]:
        """For each slice the one that was opened last before it on its track and may still be open, or -1."""
        before = [-1] * len(self.slices)
        for indexes in self.tracks.values():
            stack: list[int] = []
            for index in indexes:
                start = self.slices[index].start_ns
                while stack and self.slices[stack[-1]].end_ns <= start:
                    stack.pop()
                if stack:
                    before[index] = stack[-1]
                stack.append(index)
        return before

    def chain(self, index: int) -> list[int]:
        """The slices that enclose one on its track, innermost first, without itself, MAX_CHAIN at most.

        Slices that overlap without nesting (step annotations beside python stacks) hide none of those that enclose.
        """
        end = self.slices[index].end_ns
        found: list[int] = []
        place = self._opened_before[index]
        while place >= 0 and len(found) < MAX_CHAIN:
            if self.slices[place].end_ns >= end:
                found.append(place)
            place = self._opened_before[place]
        return found

    @cached_property
    def parents(self) -> list[int]:
        """For each slice the one that encloses it most closely, or -1."""
        slices = self.slices
        parents = list(self._opened_before)
        for indexes in self.tracks.values():
            for index in indexes:
                place, end = parents[index], slices[index].end_ns
                # What a slice that ends too early did not nest in ends earlier still.
                while place >= 0 and slices[place].end_ns < end:
                    place = parents[place]
                parents[index] = place
        return parents

    @cached_property
    def gpu_ops(self) -> list[int]:
        """Kernels, copies and memsets, by start."""
        ops = [index for index, event in enumerate(self.slices) if event.category in GPU_CATEGORIES]
        return sorted(ops, key=lambda index: self.slices[index].start_ns)

    @cached_property
    def runtime_calls(self) -> list[int]:
        """Calls into the CUDA or HIP runtime and driver, in file order."""
        return [index for index, event in enumerate(self.slices) if event.category in RUNTIME_CATEGORIES]

    @cached_property
    def runtime_starts(self) -> list[int]:
        """When runtime calls began, sorted."""
        return sorted(self.slices[index].start_ns for index in self.runtime_calls)

    @cached_property
    def runtime_children(self) -> dict[int, list[int]]:
        """Runtime calls made directly inside each slice."""
        children: dict[int, list[int]] = {}
        for index in self.runtime_calls:
            children.setdefault(self.parents[index], []).append(index)
        return children

    def place(self, index: int) -> tuple[int, int]:
        """The (pid, tid) of a slice in the merged trace."""
        row = self._rows[self.slices[index].track]
        return row.pid, self.merged.lanes.get(index, row.tid)

    @cached_property
    def _rows(self) -> dict[Track, MergedTrack]:
        return {row.source: row for row in self.merged.rows if row.lane == 1}

    @cached_property
    def has_gpu(self) -> bool:
        return bool(self.gpu_ops or self.runtime_calls)

    def correlation(self, index: int) -> int | None:
        """What joins a runtime call to its GPU work; 0 means unknown and is never a key."""
        args = self.slices[index].args
        if args is None:
            return None
        try:
            value = _CORRELATED.decode(args).correlation
        except msgspec.ValidationError:
            return None
        number = whole_number(value) if isinstance(value, str) else value
        return number if number and abs(number) < _MAX_CORRELATION else None

    @cached_property
    def gpu_by_correlation(self) -> dict[int, list[int]]:
        """GPU work of each runtime call, by start. A graph launch has many."""
        table: dict[int, list[int]] = {}
        for index in self.gpu_ops:
            key = self.correlation(index)
            if key is not None:
                table.setdefault(key, []).append(index)
        return table

    @cached_property
    def steps(self) -> list[StepSpan]:
        return find_steps(self.slices, self.rank)

    @cached_property
    def _step_starts(self) -> list[int]:
        return [step.start_ns for step in self.steps]

    def step_at(self, at_ns: int) -> StepSpan | None:
        """The step that holds a moment; None between steps and outside them."""
        place = bisect_right(self._step_starts, at_ns) - 1
        if place < 0 or self.steps[place].end_ns <= at_ns:
            return None
        return self.steps[place]
