"""A session: one folder with a manifest that says what every rank recorded and how it ended."""

from __future__ import annotations

from enum import Enum
from typing import Any

import msgspec

MANIFEST_SCHEMA = "dsv4prof.session/1"
MANIFEST_NAME = "manifest.json"


class RankCoordinates(msgspec.Struct, frozen=True):
    """Who a rank is. `rank` is global; the group coordinates are None when nobody said."""

    rank: int
    world_size: int | None = None
    tp: int | None = None
    dp: int | None = None
    pp: int | None = None
    ep: int | None = None
    host: str | None = None
    device: str | None = None


class Outcome(str, Enum):
    """How a rank's recording ended."""

    RECORDING = "recording"
    COMPLETE = "complete"
    INCOMPLETE = "incomplete"
    MISSING = "missing"


class ClockAnchor(msgspec.Struct, frozen=True):
    """The same instant on two clocks of one host, nanoseconds: wall (time.time_ns) and monotonic (perf_counter_ns)."""

    wall_ns: int
    monotonic_ns: int


class ReleaseProof(msgspec.Struct, frozen=True):
    """What happened to the profiler after export.

    `freed` is observed through weak references to the profiler and to its C++ results, never assumed.
    `holders` names who still refers to it when `freed` is false. RSS is read by psutil, bytes.
    """

    freed: bool
    holders: list[str]
    collect_ns: int
    collected_objects: int
    frozen_objects: int
    rss_before_bytes: int
    rss_after_bytes: int
    note: str | None = None


class Overhead(msgspec.Struct, frozen=True):
    """Profiled against unprofiled steps of the same run, matched by step key (same work).

    `ratio` is the median over the `matched` profiled steps of profiled over unprofiled time, `ratio_low` and
    `ratio_high` are the quartiles: wide apart, the machine was busy and the median means little.
    """

    profiled_steps: int
    unprofiled_steps: int
    profiled_ns: int
    unprofiled_ns: int
    ratio: float | None
    reason: str
    matched: int = 0
    ratio_low: float | None = None
    ratio_high: float | None = None


class CallSite(msgspec.Struct, frozen=True):
    """An operator called inside a span, with the Python line that called it; seen by a dispatch mode in one step.

    `op` is `aten::repeat_interleave`, `overload` `Tensor`; `keywords` holds the plain keyword arguments as text.
    Torch's own stack rows give a function's def line only, so the call's line comes from here.
    """

    region: str
    op: str
    overload: str
    file: str
    line: int
    function: str
    calls: int
    keywords: dict[str, str] = {}


class RankRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One rank's part of a session. Paths are relative to the session's folder."""

    coordinates: RankCoordinates
    outcome: Outcome
    reason: str | None = None
    trace: str | None = None
    trace_bytes: int | None = None
    events: int | None = None
    first_step: int | None = None
    steps: int = 0
    stop_ns: int | None = None
    export_ns: int | None = None
    clock: ClockAnchor | None = None
    release: ReleaseProof | None = None
    overhead: Overhead | None = None
    pid: int | None = None
    versions: dict[str, str] = {}
    call_sites: list[CallSite] = []
    call_sites_steps: int = 0
    facts: dict[str, Any] = {}


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """The manifest of a session's folder. `settings` maps a name to [value, source].

    `pid` on `host` is the process that made it: as long as that lives, ranks may still report.
    """

    schema: str = MANIFEST_SCHEMA
    id: str
    name: str
    created: str
    command: list[str]
    plan: dict[str, Any] = {}
    settings: dict[str, Any] = {}
    versions: dict[str, str] = {}
    world_size: int
    ranks: list[RankRecord] = []
    workload: dict[str, Any] = {}
    merged: str | None = None
    outcome: Outcome = Outcome.RECORDING
    reason: str | None = None
    pid: int | None = None
    host: str | None = None
