"""One run of the embedded engine, as plain values that travel from the leader to every rank."""

from __future__ import annotations

import os
from math import isfinite
from typing import Any

import msgspec

from dsv4prof.errors import UsageError
from dsv4prof.recorder.plan import RecordPlan

# Where the leader leaves the spec for its ranks, in the session's folder.
SPEC_NAME = ".spec.json"
# Far beyond any sensible run: what is over it is a mistyped number, refused before it fills memory.
_MOST = {"requests": 1_000_000, "max_requests": 65_536, "max_new_tokens": 1_000_000, "chunk_tokens": 1_000_000}
_MOST_STEPS = 1_000_000
_MOST_MB = 1 << 20
_LONGEST_NAME = 100
_LONGEST_TIMEOUT_S = 86_400.0
DEVICES = ("cpu", "cuda", "hip")


class RunSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What to serve, on what, and what to record of it.

    `requests` requests are served from `prompts` (a text file of prompts separated by lines of `---`, used again from
    the start when there are fewer; None = bundled ones), at most `max_requests` at a time, `max_new_tokens` tokens
    each. A recording longer than the workload serves it again until the window is full. `show_text` keeps prompts and
    outputs as text in the session (`target.outputs`).
    `tp` ranks share each of `dp` replicas, which serve requests of their own; experts are dealt over `ep` blocks of
    all tp * dp ranks (None = a block a rank). `backend` to `simulate_accept_len` are the engine's options of these
    names (EngineOptions); `cache_mb` is its caches' budget in MiB, and None leaves overlap and graphs to the device.
    `fault_watch` has every rank keep a fault record, and a step in which nothing moves for `fault_watch_timeout_s`
    counts as hung: all ranks then write their stacks and are ended.
    `port` is the ranks' rendezvous on 127.0.0.1, 0 picks a free one. `root` is the folder that holds sessions.
    `threads` is torch's number of threads in each rank; None leaves one core to the leader and shares the others out.
    `settings` maps a name to [value, source] and `command` is the command line; both go into the manifest as they are.
    """

    model: str = "dsv4-nano"
    device: str = "cpu"
    dtype: str = "float32"
    tp: int = 1
    dp: int = 1
    ep: int | None = None
    num_drafts: int = 3
    exact_num_tokens: bool = False
    backend: str = "reference"
    page_size: int = 256
    cache_mb: int | None = None
    radix: bool = True
    mixed: bool = False
    overlap: bool | None = None
    graphs: bool | None = None
    draft_extend_graph: bool = True
    plan_on: str = "device"
    faults: tuple[str, ...] = ()
    simulate_accept_len: float | None = None
    requests: int = 8
    max_requests: int = 4
    max_new_tokens: int = 48
    chunk_tokens: int = 256
    context_len: int | None = None
    prompts: str | None = None
    show_text: bool = False
    profile: bool = False
    fault_watch: bool = False
    fault_watch_timeout_s: float = 300.0
    plan: RecordPlan = RecordPlan()
    root: str = "traces/local"
    name: str | None = None
    port: int = 0
    threads: int | None = None
    settings: dict[str, Any] = {}
    command: list[str] = []

    def __post_init__(self) -> None:
        for field in ("tp", "dp", "requests", "max_requests", "max_new_tokens", "chunk_tokens"):
            if getattr(self, field) < 1:
                raise UsageError(f"{field} is {getattr(self, field)}", hint="give 1 or more")
            if getattr(self, field) > _MOST.get(field, getattr(self, field)):
                raise UsageError(f"{field} is {getattr(self, field)}", hint=f"give {_MOST[field]} or less")
        if self.profile:
            self._check_plan()
        if self.device not in DEVICES:
            raise UsageError(f"device {self.device!r} is unknown", hint="one of " + ", ".join(DEVICES))
        if not 0 < self.fault_watch_timeout_s <= _LONGEST_TIMEOUT_S:
            raise UsageError(
                f"the fault watch's timeout is {self.fault_watch_timeout_s:g} s", hint="give over 0 and up to a day"
            )
        if self.threads is not None and self.threads < 1:
            raise UsageError(f"threads is {self.threads}", hint="give 1 or more")
        if self.name is not None and len(self.name) > _LONGEST_NAME:
            raise UsageError(
                f"the session's name has {len(self.name)} characters", hint=f"give {_LONGEST_NAME} or fewer"
            )
        if not 0 <= self.port <= 65535:
            raise UsageError(f"port {self.port} is not between 0 and 65535", hint="0 picks a free port")

    def _check_plan(self) -> None:
        """What is possible in general and not in this run."""
        if self.plan.active is None:
            raise UsageError("a run has to know how many steps to record", hint="give the plan active steps")
        self._check_sizes()
        absent = [rank for rank in self.plan.ranks if isinstance(rank, int) and rank >= self.world]
        if absent:
            raise UsageError(
                f"the plan records rank {absent[0]}, and the run has {self.world} ranks", hint="ranks count from 0"
            )
        gpu_only = {"gpu", "mem", "cuda_profiler", "rpd", "rocprof"} & set(self.plan.sources)
        if self.device == "cpu" and gpu_only:
            raise UsageError(
                f"a run on the CPU has no {sorted(gpu_only)[0]} activity", hint="give --device cuda or hip, or leave it"
            )

    def _check_sizes(self) -> None:
        """What no run reaches is a mistyped number: it would serve until somebody ends it, or never be a limit."""
        for name, field in (("steps", "active"), ("wait", "wait"), ("warmup", "warmup"), ("start_step", "start_step")):
            value = getattr(self.plan, field)
            if value is not None and value > _MOST_STEPS:
                raise UsageError(f"{name} is {value}", hint=f"give {_MOST_STEPS} or less")
        if (self.plan.size_limit_mb or 0) > _MOST_MB:
            raise UsageError(f"size_limit_mb is {self.plan.size_limit_mb}", hint=f"give {_MOST_MB} (1 TiB) or less")
        if not isfinite(self.plan.time_limit_s or 0):
            raise UsageError(f"time_limit_s is {self.plan.time_limit_s}", hint="give a number of seconds")
        # In the plan, a list without a name in it has become no list at all.
        given = next(iter(_as_list(self.settings.get("stages"))), None)
        if given is not None and not self.plan.stages:
            raise UsageError(f"stages is {given!r}, which names none", hint="name a stage, or leave stages out")

    def threads_of_a_rank(self) -> int:
        """How many threads torch gets in each rank on this machine."""
        return self.threads or max(1, ((os.cpu_count() or 1) - 1) // self.world)

    @property
    def world(self) -> int:
        """All ranks."""
        return self.tp * self.dp

    @property
    def torch_device(self) -> str:
        """torch's name of the device: HIP devices are called cuda there."""
        return self.device.replace("hip", "cuda")


def _as_list(setting: object) -> list[object]:
    """[value, source], or nothing where the setting was not given."""
    return setting if isinstance(setting, list) else []
