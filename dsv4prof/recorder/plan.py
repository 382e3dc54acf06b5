"""What to record, decided before anything runs: an impossible plan is refused when it is made."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from dsv4prof.errors import UsageError
from dsv4prof.model.phase import Phase
from dsv4prof.model.session import RankCoordinates
from dsv4prof.recorder.stages import parse_stages

Release = Literal["collect", "keep"]
# In the order in which they are named in a file or a message.
ACTIVITIES = ("auto", "cpu", "gpu", "mem", "nvtx", "cuda_profiler", "rpd", "rocprof")
_TORCH = frozenset({"auto", "cpu", "gpu"})
# What a user asks of torch.profiler and no other source can give.
_TORCH_DETAILS = ("record_shapes", "profile_memory", "with_flops", "with_modules")
_MOST_WINDOWS = 100


class RecordPlan(msgspec.Struct, frozen=True, kw_only=True):
    """One window of steps or several, and what is noted in them.

    **Which steps.** `wait` steps pass unrecorded, then `warmup` steps with the tracer prepared but silent (it costs
    time the first time), then `active` steps are recorded; `windows` repeats that. `wait=None` leaves the place of the
    window to the target; a script's begins at once. `active=None` records until it is stopped. `start_step` is the
    number of the first recorded step, counted by the program's manager since it was made; it takes the place of `wait`.
    Without any call of `step()` the whole block is recorded.
    `stages` records each named stage in a window of its own, in the order in which the program reaches them: it opens
    at the stage's first step, and closes after `active` steps of it, or when a step of another stage begins. `decode`
    takes in `target_verify`, `draft` and `draft_extend` unless they are named as well.

    **Which ranks.** `ranks` is "all", "node" (the first of each host) or numbers.

    **What.** `activities` are words joined by "+": `cpu` and `gpu` (torch.profiler; "auto" is the CPU and whatever
    accelerator torch can trace here), `mem` (an allocator snapshot of the GPU beside the trace), `nvtx` (operators as
    NVTX or roctx ranges, for a vendor's profiler), `cuda_profiler` (the capture range of a vendor's profiler that is
    attached from outside), `rpd` and `rocprof` (ROCm: RPD's tracer, rocprofv3's collection switched on for the window).
    `with_modules` names torch.nn modules where torch can tell them; `with_flops` needs shapes and switches them on.

    **How long at most.** `size_limit_mb` bounds how much the process grows while it records, in MiB: the trace's JSON
    becomes about 0.7 to 2 times as large, and stopping needs 6 to 10 times as much memory (measured on torch 2.13, CPU,
    and 2.11, H200). `time_limit_s` bounds the seconds of a window. Both are looked at between two steps, end the window
    and keep what is there. None is no limit.

    **Afterwards.** `release="collect"` frees the profiler at a known point and proves it; "keep" holds the stopped
    profiler on purpose until the process ends, for a ROCm whose teardown crashes (`dsv4prof doctor --profiler` tells).
    """

    wait: int | None = None
    warmup: int = 0
    active: int | None = 24
    start_step: int | None = None
    windows: int = 1
    stages: tuple[Phase, ...] = ()
    ranks: Literal["all", "node"] | tuple[int, ...] = "all"
    activities: str = "auto"
    with_stack: bool = True
    record_shapes: bool = False
    profile_memory: bool = False
    with_flops: bool = False
    with_modules: bool = False
    size_limit_mb: int | None = 256
    time_limit_s: float | None = None
    release: Release = "collect"

    def __post_init__(self) -> None:
        # Words become what they mean once, so that every reader of a plan sees the same form.
        msgspec.structs.force_setattr(self, "stages", parse_stages(self.stages))
        msgspec.structs.force_setattr(self, "activities", _joined(self.activities))
        if not isinstance(self.ranks, str):
            msgspec.structs.force_setattr(self, "ranks", tuple(sorted(set(self.ranks))))
        self._check_steps()
        self._check_stages()
        self._check_ranks()
        self._check_limits()
        self._check_activities()

    @property
    def sources(self) -> tuple[str, ...]:
        """The words of `activities`."""
        return tuple(self.activities.split("+"))

    @property
    def uses_torch_profiler(self) -> bool:
        return not _TORCH.isdisjoint(self.sources)

    @property
    def first_step(self) -> int:
        """How many steps pass before the first recorded one, of a plan that is not by stage."""
        return (self.wait or 0) + self.warmup

    @property
    def end_step(self) -> int | None:
        """The index of the first step after the first window; None when it is open-ended."""
        return None if self.active is None else self.first_step + self.active

    def window_names(self) -> tuple[str, ...]:
        """The names of all windows, in the plan's order; one that is alone has the empty name."""
        rounds = range(1, self.windows + 1)
        if self.stages:
            return tuple(
                stage.value if self.windows == 1 else f"{stage.value}-{number}"
                for number in rounds
                for stage in self.stages
            )
        return ("",) if self.windows == 1 else tuple(map(str, rounds))

    def records(self, rank: RankCoordinates) -> bool:
        """Whether this rank is one of those to record. Raises UsageError where "node" cannot be told."""
        if self.ranks == "all":
            return True
        if self.ranks != "node":
            return rank.rank in self.ranks
        if rank.local_rank is None and (rank.world_size or 1) > 1:
            raise UsageError(
                f"which rank is a node's first cannot be told: rank {rank.rank} does not know its local rank",
                hint="set LOCAL_RANK, as torchrun does, or name the ranks",
            )
        return not rank.local_rank

    def _check_steps(self) -> None:
        for name in ("wait", "start_step"):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise UsageError(f"a recording cannot wait {value} steps ({name})", hint="give 0 or more")
        if self.wait is not None and self.start_step is not None:
            raise UsageError("wait and start_step both say where a recording begins", hint="give one of them")
        if self.warmup < 0:
            raise UsageError(f"a recording cannot warm up for {self.warmup} steps", hint="give 0 or more")
        if self.active is not None and self.active < 1:
            raise UsageError(f"a recording of {self.active} steps records nothing", hint="give 1 active step or more")
        if not 1 <= self.windows <= _MOST_WINDOWS:
            raise UsageError(f"{self.windows} windows are impossible", hint=f"give 1 to {_MOST_WINDOWS}")
        if self.windows > 1 and self.active is None:
            raise UsageError("a window without end leaves no place for a second one", hint="say how many active steps")

    def _check_stages(self) -> None:
        if not self.stages:
            return
        if self.active is None:
            raise UsageError(
                "a recording by stage needs a number of steps for each stage", hint="say how many (--steps)"
            )
        if self.warmup:
            raise UsageError(
                "a recording by stage cannot warm up: nobody knows when a stage will begin",
                hint="leave warmup out; Kineto's first start is paid before the window anyway",
            )

    def _check_ranks(self) -> None:
        if isinstance(self.ranks, str):
            if self.ranks not in ("all", "node"):
                raise UsageError(f"unknown ranks {self.ranks!r}", hint='"all", "node" or a list of numbers')
        elif not self.ranks:
            raise UsageError("a recording of no rank records nothing", hint="name a rank, or leave ranks out")
        elif self.ranks[0] < 0:
            raise UsageError(f"there is no rank {self.ranks[0]}", hint="ranks count from 0")

    def _check_limits(self) -> None:
        if self.size_limit_mb is not None and self.size_limit_mb < 1:
            raise UsageError(f"a size limit of {self.size_limit_mb} MiB records nothing", hint="give 1 or more")
        if self.time_limit_s is not None and not self.time_limit_s > 0:
            raise UsageError(f"a time limit of {self.time_limit_s} s records nothing", hint="give more than 0")
        if self.release not in ("collect", "keep"):
            raise UsageError(f"unknown release {self.release!r}", hint='"collect" or "keep"')

    def _check_activities(self) -> None:
        sources = set(self.sources)
        if "nvtx" in sources and self.uses_torch_profiler:
            raise UsageError(
                "torch cannot emit NVTX ranges and record by itself at the same time",
                hint="activities='nvtx+cuda_profiler' under a vendor's profiler, or 'cpu+gpu' without",
            )
        if not self.uses_torch_profiler:
            for name in _TORCH_DETAILS:
                if getattr(self, name):
                    raise UsageError(
                        f"{name} is noted by torch's profiler, which {self.activities!r} leaves out",
                        hint="add cpu or gpu to the activities",
                    )


def _joined(words: str | Iterable[str]) -> str:
    """`activities` in one form: known words once each, in a fixed order."""
    given = words.replace(",", "+").split("+") if isinstance(words, str) else list(words)
    wanted = {word.strip().lower() for word in given} - {""}
    if unknown := sorted(wanted - set(ACTIVITIES)):
        raise UsageError(f"unknown activity {unknown[0]!r}", hint="of " + ", ".join(ACTIVITIES))
    if not wanted:
        raise UsageError("a recording of no activity records nothing", hint="of " + ", ".join(ACTIVITIES))
    if wanted > {"auto"} and wanted & _TORCH != {"auto"}:
        raise UsageError("'auto' already says which of cpu and gpu", hint="leave auto out, or the others")
    return "+".join(word for word in ACTIVITIES if word in wanted)
