"""A session: one folder with a manifest that says what every rank recorded and how it ended."""

from __future__ import annotations

from enum import Enum
from typing import Any

import msgspec

MANIFEST_SCHEMA = "dsv4prof.session/2"
MANIFEST_NAME = "manifest.json"


class RankCoordinates(msgspec.Struct, frozen=True):
    """Who a rank is. `rank` is global; the group coordinates are None when nobody said.

    `local_rank` counts on one host. `sizes` are those of the groups by name (`{"tp": 8, "dp": 2}`), as far as known.
    """

    rank: int
    world_size: int | None = None
    tp: int | None = None
    dp: int | None = None
    pp: int | None = None
    ep: int | None = None
    local_rank: int | None = None
    sizes: dict[str, int] = {}
    host: str | None = None
    device: str | None = None


class Outcome(str, Enum):
    """How a rank's recording ended."""

    RECORDING = "recording"
    COMPLETE = "complete"
    INCOMPLETE = "incomplete"
    # Nothing of use was saved, and the reason says why: the tool's own failure, never the profiled program's.
    FAILED = "failed"
    # The plan leaves this rank out.
    SKIPPED = "skipped"
    MISSING = "missing"


class EndedBy(str, Enum):
    """What closed a window."""

    MAX_STEPS = "max_steps"
    STAGE_CHANGE = "stage_change"
    STOP = "stop"
    SIZE_LIMIT = "size_limit"
    TIME_LIMIT = "time_limit"
    BLOCK_END = "block_end"
    EXIT = "exit"
    ERROR = "error"


class ClockAnchor(msgspec.Struct, frozen=True):
    """The same instant on two clocks of one host, nanoseconds: wall (time.time_ns) and monotonic (perf_counter_ns)."""

    wall_ns: int
    monotonic_ns: int


class ReleaseProof(msgspec.Struct, frozen=True):
    """What happened to the profiler after export.

    `freed` is observed through weak references to the profiler and to its C++ results, never assumed.
    `holders` names who still refers to it when `freed` is false. RSS is read by psutil, bytes.
    `kept` says that it was kept alive on purpose (`release="keep"`): `freed` is then false and `held_bytes` is what it
    holds, measured. `place` says where the collection's pause fell.
    """

    freed: bool
    holders: list[str]
    collect_ns: int
    collected_objects: int
    frozen_objects: int
    rss_before_bytes: int
    rss_after_bytes: int
    note: str | None = None
    kept: bool = False
    held_bytes: int = 0
    place: str | None = None


class WindowRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One window of one rank: what a profiler recorded from its start to its stop.

    `name` is empty for the only window, a stage (`prefill`) or a number for one of several. Files are relative to the
    session's folder; `files` names those of other sources than the profiler (`memory`: an allocator snapshot).
    `stop_ns` is what the stop cost the profiled thread, `export_ns` what saving took beside it.
    `events_by_thread` counts operators by the thread (`tid`) that ran them. `growth_bytes` is how much the process grew
    while recording, `first_step` counts from arming.
    """

    name: str = ""
    first_step: int | None = None
    steps: int = 0
    ended_by: EndedBy | None = None
    reason: str | None = None
    trace: str | None = None
    trace_bytes: int | None = None
    events: int | None = None
    events_by_thread: dict[str, int] = {}
    files: dict[str, str] = {}
    stop_ns: int | None = None
    export_ns: int | None = None
    growth_bytes: int | None = None
    clock: ClockAnchor | None = None
    release: ReleaseProof | None = None
    notes: list[str] = []


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
    """One rank's part of a session: its windows in the order in which they opened, and how it ended."""

    coordinates: RankCoordinates
    outcome: Outcome
    reason: str | None = None
    windows: list[WindowRecord] = []
    overhead: Overhead | None = None
    pid: int | None = None
    versions: dict[str, str] = {}
    call_sites: list[CallSite] = []
    call_sites_steps: int = 0
    facts: dict[str, Any] = {}

    @property
    def traces(self) -> list[str]:
        """The saved trace files, relative to the session's folder."""
        return [window.trace for window in self.windows if window.trace is not None]

    @property
    def trace(self) -> str | None:
        """The first window's file that was saved."""
        return next(iter(self.traces), None)

    @property
    def trace_bytes(self) -> int:
        return sum(window.trace_bytes or 0 for window in self.windows)

    @property
    def events(self) -> int:
        return sum(window.events or 0 for window in self.windows)

    @property
    def first_step(self) -> int | None:
        """The first recorded step, None when no window opened."""
        return next((window.first_step for window in self.windows if window.first_step is not None), None)

    @property
    def steps(self) -> int:
        return sum(window.steps for window in self.windows)

    @property
    def releases(self) -> list[ReleaseProof]:
        return [window.release for window in self.windows if window.release is not None]

    @property
    def release(self) -> ReleaseProof | None:
        """The first release that failed, or else the last one."""
        failed = [proof for proof in self.releases if not proof.freed]
        return failed[0] if failed else next(reversed(self.releases), None)

    def window(self, name: str) -> WindowRecord | None:
        """The window of that name."""
        return next((window for window in self.windows if window.name == name), None)


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
