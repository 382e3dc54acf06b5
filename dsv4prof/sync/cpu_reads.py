"""Reads in a trace without a device: operators that would make the host wait if their tensors were on a GPU.

Nothing blocks here, so a read has no cost. What only a CPU does (an async assert, the value of a mask assignment) is
left out; so are `.tolist()`, `.cpu()` and copies, which leave no operator of their own in a CPU trace. Whether a tensor
would be on the device cannot be seen, so a read of a tensor that is meant for the host is reported too.
"""

from __future__ import annotations

from dsv4prof.sync.context import Context, context_of
from dsv4prof.sync.read import Read
from dsv4prof.sync.readings import (
    ELEMENT_UPLOAD,
    LIST_UPLOAD,
    MASK_ASSIGNMENT,
    OWN_READS,
    SCALAR_READ,
    UPLOAD,
    Reading,
    only_on_cpu,
    reading_of,
)
from dsv4prof.trace.index import RankIndex
from dsv4prof.trace.vendor import HOST_OP_CATEGORIES

_ASSIGN = "aten::index_put_"
_VIEWS = frozenset({"aten::select", "aten::slice", "aten::unsqueeze", "aten::expand", "aten::view", "aten::alias"})


def cpu_reads(rank: RankIndex) -> list[Read]:
    """Every read of one rank, in order of time."""
    neighbours = _Neighbours(rank)
    found: list[Read] = []
    uploads: list[tuple[int, Context]] = []
    masked: set[int] = set()
    for index, event in enumerate(rank.slices):
        if event.category not in HOST_OP_CATEGORIES:
            continue
        if event.name == UPLOAD:
            uploads.append((index, context_of(rank, index)))
        elif event.name in OWN_READS or event.name == SCALAR_READ:
            context = context_of(rank, index)
            if event.name == SCALAR_READ and context.ops[0] == _ASSIGN:
                masked.add(context.call)
            reading = _reading(context, neighbours)
            if reading is not None:
                found.append(Read(index, context, reading, OWN_READS.get(event.name, 1)))
    for index, context in uploads:
        upload = neighbours.upload(index, masked)
        if upload is not None:
            found.append(Read(index, context, upload))
    return sorted(found, key=lambda read: rank.slices[read.index].start_ns)


def _reading(context: Context, neighbours: _Neighbours) -> Reading | None:
    above = context.ops[:-1]
    if any(op in OWN_READS for op in above):
        return None
    if context.ops[-1] == SCALAR_READ:
        if context.ops[0] == _ASSIGN:
            return None if neighbours.assigns_number(context.call) else MASK_ASSIGNMENT
        if only_on_cpu(above):
            return None
    return reading_of(context.ops)


class _Neighbours:
    """The operators beside each other in one caller: only they tell one kind of upload from another."""

    def __init__(self, rank: RankIndex) -> None:
        self._slices = rank.slices
        self._before: dict[int, int] = {}
        self._after: dict[int, int] = {}
        for indexes in rank.tracks.values():
            last: dict[int, int] = {}
            for index in indexes:
                if rank.slices[index].category in HOST_OP_CATEGORIES:
                    parent = rank.parents[index]
                    if parent in last:
                        self._before[index] = last[parent]
                        self._after[last[parent]] = index
                    last[parent] = index

    def _name(self, index: int | None) -> str:
        return "" if index is None else self._slices[index].name

    def _past_views(self, index: int, steps: dict[int, int]) -> int | None:
        place = steps.get(index)
        while place is not None and self._name(place) in _VIEWS:
            place = steps.get(place)
        return place

    def assigns_number(self, call: int) -> bool:
        """Whether an index_put_ assigns a Python number, which through a mask is a fill and no read."""
        return self._name(self._past_views(call, self._before)) == UPLOAD

    def upload(self, index: int, masked: set[int]) -> Reading | None:
        """What a lift_fresh would upload: a list, or a number for an element; None for a number that only fills."""
        if self._name(self._before.get(index)) == "aten::to":
            return LIST_UPLOAD
        target = self._past_views(index, self._after)
        name = self._name(target)
        return ELEMENT_UPLOAD if name == "aten::copy_" or (name == _ASSIGN and target not in masked) else None
