"""One rank's trace, and the traces of all ranks on one clock."""

from __future__ import annotations

from typing import Any

import msgspec

from dsv4prof.model.event import AsyncPoint, Counter, FlowPoint, Instant, Slice, Track
from dsv4prof.model.phase import Phase
from dsv4prof.model.session import RankCoordinates


class Dropped(msgspec.Struct, frozen=True):
    """Events that a stage left out or repaired: how many and why. Nothing is dropped without one of these.

    `harmless` ones say nothing about the recording: writers add them, and no viewer could show them.
    """

    count: int
    reason: str
    harmless: bool = False


class TrackInfo(msgspec.Struct, frozen=True):
    """What the file's metadata events say of a track: names, labels, order."""

    track: Track
    process_name: str | None = None
    process_labels: str | None = None
    process_sort: int | None = None
    thread_name: str | None = None
    thread_sort: int | None = None


class RankTrace(msgspec.Struct, frozen=True):
    """One rank's file, typed. Ids in it (flow, correlation, External id) mean nothing in another rank.

    `notes` says in sentences what was repaired or contradictory; `complete` is False when the file ends early. `clock`
    is how a rank out of a merged trace was put on the common clock, on which its times already are.
    """

    source: str
    coordinates: RankCoordinates
    slices: list[Slice]
    instants: list[Instant]
    counters: list[Counter]
    flows: list[FlowPoint]
    tracks: list[TrackInfo]
    metadata: dict[str, Any]
    base_ns: int
    dropped: list[Dropped]
    complete: bool = True
    asyncs: list[AsyncPoint] = []
    notes: list[str] = []
    clock: ClockFit | None = None


class ClockFit(msgspec.Struct, frozen=True):
    """How one rank's clock was mapped onto the common one: t' = t - offset_ns - drift_ppm * 1e-6 * (t - origin).

    `drift_ppm` is None where no drift was looked for, `residual_ns` where nothing could be matched.
    """

    rank: int
    offset_ns: int
    drift_ppm: float | None
    residual_ns: int | None
    matches: int
    reason: str


class StepSpan(msgspec.Struct, frozen=True):
    """One engine step of one rank, absolute nanoseconds on the common clock.

    `kind` is prefill or decode, empty when the trace does not say; `accepted` output tokens of its verify.
    """

    rank: int
    index: int
    start_ns: int
    end_ns: int
    phases: tuple[PhaseSpan, ...] = ()
    requests: int = 0
    accepted: int | None = None
    kind: str = ""


class PhaseSpan(msgspec.Struct, frozen=True):
    """One phase inside a step. `captured` is None when the trace does not say."""

    phase: Phase
    start_ns: int
    end_ns: int
    captured: bool | None = None
    label: str = ""


class MergedTrace(msgspec.Struct, frozen=True):
    """All ranks on one clock: one pid per (rank, device), globally unique flow ids, lanes for overlaps."""

    ranks: list[MergedRank]
    origin_ns: int
    clocks: list[ClockFit]
    missing_ranks: list[int]
    clock_origin_ns: int = 0


class MergedTrack(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the merged trace and the track it comes from. `lane` is over 1 for an extra lane of that track."""

    pid: int
    tid: int
    source: Track
    lane: int = 1
    process_name: str
    process_labels: str | None = None
    process_sort: int
    thread_name: str | None = None
    thread_sort: int | None = None


class MergedRank(msgspec.Struct, frozen=True):
    """One rank inside a merged trace: its own events plus how they are renamed when written.

    `pids` maps the file's process to the merged one, `lanes` the index of a moved slice to its lane's tid; `rows` lists
    every merged track. The trace's flows carry ids 1, 2, ...; written, they get `flow_base` added.
    """

    trace: RankTrace
    pids: dict[str, int]
    lanes: dict[int, int]
    lane_count: int
    flow_base: int
    rows: list[MergedTrack] = []
