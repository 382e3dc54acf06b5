"""A merge's plan -> Chrome JSON that Perfetto and chrome://tracing open whole, and that loads back exactly.

Times are written as decimal microseconds relative to a small origin: Perfetto parses them as doubles, and at epoch
scale a double keeps only a quarter of a microsecond. `baseTimeNanoseconds` plus a time is the absolute one.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import metadata
from pathlib import PurePath
from typing import Any

import msgspec

from dsv4prof.model.trace import MergedTrack
from dsv4prof.trace.columns import OutBlock, SegmentHead
from dsv4prof.trace.core import json_encoder
from dsv4prof.trace.planning import MergePlan, RankPlan

MERGED_SCHEMA = "dsv4prof.merged/2"


class JsonFormat:
    """Chrome JSON. The metadata comes first, so that a reader of the head knows what the file is."""

    separator = b",\n"

    def head(self, plan: MergePlan) -> bytes:
        return (
            b'{"schemaVersion":1,"displayTimeUnit":"ms","baseTimeNanoseconds":%d,\n"dsv4prof":%b,\n"traceEvents":[\n'
            % (plan.origin_ns, msgspec.json.encode(merged_metadata(plan)))
        )

    def tail(self) -> bytes:
        return b"\n]}\n"

    def encoder(self, head: SegmentHead) -> JsonSegment:
        return JsonSegment(head)


class JsonSegment:
    """One rank's lines."""

    def __init__(self, head: SegmentHead) -> None:
        self._head = head
        places = [b'"pid":%d,"tid":%d' % (row.pid, row.tid) for row in head.tracks]
        self._places = places
        self._encoder = json_encoder(head.words, places, head.prefix.encode())

    def begin(self) -> bytes:
        return b",\n".join(_describe(self._head.tracks, self._places))

    def block(self, block: OutBlock) -> bytes:
        return self._encoder.block(block)

    def end(self) -> bytes:
        return b""


def _describe(tracks: list[MergedTrack], places: list[bytes]) -> Iterator[bytes]:
    described: set[int] = set()
    for row, place in zip(tracks, places, strict=True):
        if row.pid not in described:
            described.add(row.pid)
            yield _meta(b"process_name", place, {"name": row.process_name})
            if row.process_labels is not None:
                yield _meta(b"process_labels", place, {"labels": row.process_labels})
            yield _meta(b"process_sort_index", place, {"sort_index": row.process_sort})
        if row.thread_name is not None:
            yield _meta(b"thread_name", place, {"name": row.thread_name})
        if row.thread_sort is not None:
            yield _meta(b"thread_sort_index", place, {"sort_index": row.thread_sort})


def _meta(name: bytes, place: bytes, args: dict[str, Any]) -> bytes:
    return b'{"ph":"M","name":"%b",%b,"ts":0,"args":%b}' % (name, place, msgspec.json.encode(args))


def merged_metadata(plan: MergePlan) -> dict[str, Any]:
    """What a merged file says of itself: enough to take it apart into ranks again."""
    return {
        "schema": MERGED_SCHEMA,
        "version": _version(),
        "missing_ranks": plan.missing_ranks,
        "unreadable": plan.unreadable,
        "clocks": plan.clocks,
        "clock_origin_ns": plan.clock_origin_ns,
        "stragglers": plan.stragglers,
        "ranks": [_rank(rank) for rank in plan.ranks],
    }


def _rank(rank: RankPlan) -> dict[str, Any]:
    survey, facts = rank.survey, rank.survey.facts
    described = {info.track: info for info in facts.tracks}
    return {
        "rank": rank.rank,
        "coordinates": rank.coordinates,
        "source": PurePath(facts.source).name,
        "base_ns": rank.base_ns,
        "file_base_ns": facts.base_ns,
        "complete": facts.complete,
        "dropped": facts.dropped,
        "notes": rank.notes,
        "flow_base": rank.flow_base,
        "rows": rank.rows,
        "tracks": [described[row.source] for row in rank.rows if row.lane == 1],
        "metadata": facts.metadata,
        "markers": survey.markers,
        "counts": survey.counts,
    }


def _version() -> str:
    try:
        return metadata.version("dsv4prof")
    except metadata.PackageNotFoundError:
        return "unknown"
