"""Arrows on the slices that they connect.

In this format a flow is a number on the slice's begin and is followed in the order of begins. The importer draws an
arrow from each slice that has the number to the next one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dsv4prof.trace.columns import BINDS_ENCLOSING, Ints, OutBlock
from dsv4prof.trace.perfetto.assembly import Events, Tied, flow_field
from dsv4prof.trace.perfetto.nesting import innermost
from dsv4prof.trace.perfetto.schema import Event

_START, _END = ord("s"), ord("f")
# Further ends of one arrow get numbers of their own: a number can only be followed from slice to slice.
_BRANCH_SHIFT = 48
USUAL = "ac2g"


class FlowPoints(NamedTuple):
    """Points of arrows, one place each; `enclosing` ones belong to the slice around them, others to the next.

    `marked` ones say that they bind to what is around them, which only an end needs to.
    """

    ts: Ints
    track: npt.NDArray[np.int32]
    id: Ints
    ph: npt.NDArray[np.uint8]
    name: npt.NDArray[np.int32]
    category: npt.NDArray[np.int32]
    enclosing: npt.NDArray[np.bool_]
    marked: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, block: OutBlock, chosen: np.ndarray) -> FlowPoints:
        rows = block.rows[chosen]
        marked = rows["flags"] & BINDS_ENCLOSING > 0
        enclosing = (rows["ph"] != _END) | marked
        columns = (block.ts[chosen], block.place[chosen].astype(np.int32), block.ids[chosen])
        return cls(*columns, rows["ph"].copy(), rows["name"].copy(), rows["cat"].copy(), enclosing, marked)

    @classmethod
    def joined(cls, parts: Sequence[FlowPoints]) -> FlowPoints:
        if parts:
            return cls(*(np.concatenate(column) for column in zip(*parts, strict=True)))
        none, small = np.zeros(0, np.int64), np.zeros(0, np.int32)
        return cls(none, small, none, np.zeros(0, np.uint8), small, small, np.zeros(0, bool), np.zeros(0, bool))


class FlowName(NamedTuple):
    """What flows of these numbers are called; `marked` when their starts say that they bind to what is around them."""

    category: str
    name: str
    marked: bool
    numbers: list[int]


def tie_flows(points: FlowPoints, events: Events, words: list[str]) -> tuple[Tied, int, list[FlowName]]:
    """(fields by event, points without a slice, names of the flows that are called other than usual)."""
    slices = _slices_of(points, events)
    lost = int((slices < 0).sum())
    order = np.lexsort((np.arange(len(points.ts)), points.ph == _END, points.ph != _START, points.id))
    order = order[slices[order] >= 0]
    fields: list[tuple[int, bytes]] = []
    columns = zip(points.id[order].tolist(), points.ph[order].tolist(), slices[order].tolist(), strict=True)
    last_id = -1
    chain, branches = -1, 0
    for flow, ph, slot in columns:
        if flow != last_id:
            last_id, chain, branches = flow, -1, 0
        if ph != _END:
            chain = slot
            fields.append((slot, flow_field(Event.FLOWS, flow)))
            continue
        branches += 1
        number = flow
        if branches > 1 and chain >= 0:
            number = flow | branches - 1 << _BRANCH_SHIFT
            fields.append((chain, flow_field(Event.FLOWS, number)))
        # An arrow against the order of begins cannot be ended where it comes first.
        backwards = chain >= slot
        fields.append((slot, flow_field(Event.FLOWS if backwards or chain < 0 else Event.FLOW_ENDS, number)))
    return _tied(fields, len(events.ts)), lost, _names(points, words)


def _slices_of(points: FlowPoints, events: Events) -> Ints:
    """The place of each point's slice in `events`, which are in begin order; -1 where there is none."""
    result = np.full(len(points.ts), -1, np.int64)
    if not len(points.ts):
        return result
    slices = np.flatnonzero(events.is_slice)
    by_track = slices[np.argsort(events.track[slices], kind="stable")]
    tracks = events.track[by_track]
    for track in np.unique(points.track).tolist():
        low, high = np.searchsorted(tracks, [track, track + 1])
        own = by_track[low:high]
        mine = np.flatnonzero(points.track == track)
        if len(own):
            result[mine] = _on_track(points, mine, own, events)
    return result


def _on_track(points: FlowPoints, mine: Ints, own: Ints, events: Events) -> Ints:
    starts, times = events.ts[own], points.ts[mine]
    # The last one that begins at or before the point is nearly always the one around it.
    last = np.searchsorted(starts, times, side="right") - 1
    at = np.maximum(last, 0)
    around = (last >= 0) & ((starts[at] == times) | (starts[at] + events.dur[own][at] > times))
    found = np.where(around, own[at], -1)
    rest = np.flatnonzero(~around)
    if len(rest):
        rest = rest[np.argsort(times[rest], kind="stable")]
        places = innermost(starts.tolist(), (starts + events.dur[own]).tolist(), times[rest].tolist())
        found[rest] = [own[place] if place >= 0 else -1 for place in places]
    after = np.flatnonzero(~points.enclosing[mine])
    if len(after):
        following = np.searchsorted(starts, times[after], side="left")
        found[after] = np.where(following < len(own), own[np.minimum(following, len(own) - 1)], -1)
    return found


def _tied(fields: list[tuple[int, bytes]], count: int) -> Tied:
    fields.sort(key=lambda field: field[0])
    sizes = np.zeros(count + 1, np.int64)
    if fields:
        slots = np.array([slot for slot, _ in fields], np.int64)
        np.add.at(sizes, slots + 1, np.array([len(content) for _, content in fields], np.int64))
    return Tied(np.cumsum(sizes), b"".join(content for _, content in fields))


def _names(points: FlowPoints, words: list[str]) -> list[FlowName]:
    names: dict[tuple[str, str, bool], set[int]] = {}
    starts = points.ph == _START
    marked = points.id[starts & points.marked]
    marked_all = np.isin(points.id, marked)
    kinds = np.unique(np.stack([points.category, points.name, marked_all], axis=1), axis=0)
    for category, name, bound in kinds.tolist():
        key = (words[category], words[name], bool(bound))
        if key != (USUAL, USUAL, False):
            own = (points.category == category) & (points.name == name) & (marked_all == bound)
            names.setdefault(key, set()).update(points.id[own].tolist())
    return [FlowName(*key, sorted(ids)) for key, ids in sorted(names.items())]
