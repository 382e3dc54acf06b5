"""Reads in a trace without a device: operators that would make the host wait if their tensors were on a GPU.

Nothing blocks here, so a read has no cost. What only a CPU does (the value of a mask assignment, an async assert) is
left out; so are `.tolist()`, `.cpu()` and `.numpy()`, which leave no operator of their own in a CPU trace.
"""

from __future__ import annotations

from dsv4prof.sync.catalogue import OWN_READS, SCALAR_READ, UPLOAD, only_on_cpu, reading_of
from dsv4prof.sync.context import context_of
from dsv4prof.sync.read import Read
from dsv4prof.trace.index import RankIndex
from dsv4prof.trace.vendor import HOST_OP_CATEGORIES


def cpu_reads(rank: RankIndex) -> list[Read]:
    """Every read of one rank, in order of time."""
    found: list[Read] = []
    uploads = _list_uploads(rank)
    for index, event in enumerate(rank.slices):
        if event.category not in HOST_OP_CATEGORIES:
            continue
        if event.name not in OWN_READS and event.name != SCALAR_READ and index not in uploads:
            continue
        context = context_of(rank, index)
        above = context.ops[:-1]
        if any(op in OWN_READS for op in above) or (event.name == SCALAR_READ and only_on_cpu(above)):
            continue
        reading = reading_of(context.ops)
        if reading is not None:
            found.append(Read(index, context, reading, OWN_READS.get(event.name, 1)))
    return sorted(found, key=lambda read: rank.slices[read.index].start_ns)


def _list_uploads(rank: RankIndex) -> set[int]:
    """`lift_fresh` right after a conversion: the form of torch.tensor(list). Without one it is a scalar assignment,
    which blocks or not depending on what is assigned to, so it is not reported."""
    uploads: set[int] = set()
    for indexes in rank.tracks.values():
        before: dict[int, str] = {}
        for index in indexes:
            event = rank.slices[index]
            if event.category not in HOST_OP_CATEGORIES:
                continue
            parent = rank.parents[index]
            if event.name == UPLOAD and before.get(parent) == "aten::to":
                uploads.add(index)
            before[parent] = event.name
    return uploads
