"""When windows open and close, told by steps alone: no profiler, no clock, nothing that can fail.

A counter beside a profiler has ended windows in the middle of later, unrelated work, or never. So the counting has one
place, which can be fed a list of steps in a test.
"""

from __future__ import annotations

from dataclasses import dataclass

from dsv4prof.model.phase import Phase
from dsv4prof.model.session import EndedBy
from dsv4prof.recorder.plan import RecordPlan
from dsv4prof.recorder.stages import stage_of, window_of


@dataclass(frozen=True)
class Prepare:
    """The next window's warm-up begins."""

    window: str


@dataclass(frozen=True)
class Open:
    """The step that begins now is the window's first."""

    window: str


@dataclass(frozen=True)
class Close:
    """The window is over: it holds `steps` steps."""

    window: str
    ended_by: EndedBy
    steps: int


Action = Prepare | Open | Close


class Trigger:
    """Follows one plan. `begin` and `end` are told of every step, in turn; each answers what to do now.

    A step that begins ends the one before, for programs that only announce beginnings. `stage` is anything that
    `stages.stage_of` knows; it matters only to plans by stage.
    """

    def __init__(self, plan: RecordPlan) -> None:
        self._plan = plan
        self._names = list(plan.window_names())
        self._pending = list(plan.stages) * plan.windows
        self._prepared = False
        self._next_start = plan.first_step if plan.start_step is None else plan.start_step
        self._open: str | None = None
        self._open_stage: Phase | None = None
        self._counts = False
        self._in_step = False
        self.steps_done = 0
        self.window_steps = 0

    @property
    def window(self) -> str | None:
        """The open window's name."""
        return self._open

    @property
    def in_step(self) -> bool:
        """A step has begun and not ended."""
        return self._in_step

    @property
    def counting(self) -> bool:
        """A step has begun that the open window counts."""
        return self._in_step and self._open is not None and self._counts

    @property
    def finished(self) -> bool:
        """No window is open and none will open."""
        return self._open is None and not self._names

    def unopened(self) -> str:
        """Which windows of the plan have not opened, and what they wait for, in words."""
        if not self.steps_done and not self._in_step and not self._next_start:
            return "no step was made"
        if not self._plan.stages:
            what = f"it begins after {self._next_start} steps, and {self.steps_done} were made"
            return f"the window{' ' + self._names[0] if self._names[0] else ''} never opened: {what}"
        stages = " and ".join(dict.fromkeys(stage.value for stage in self._pending))
        after = f" after {self._next_start} steps" if self._next_start else ""
        return f"no step of {stages} came{after}"

    def begin(self, stage: object = None) -> list[Action]:
        """A step begins."""
        actions = self.end() if self._in_step else []
        self._in_step = True
        known = stage_of(stage) if self._plan.stages else None
        actions += self._begin_by_stage(known) if self._plan.stages else self._begin_by_count()
        return actions

    def end(self) -> list[Action]:
        """The step that began is over; without one nothing happens."""
        if not self._in_step:
            return []
        self._in_step = False
        self.steps_done += 1
        if self._open is None or not self._counts:
            return []
        self.window_steps += 1
        full = self._plan.active is not None and self.window_steps >= self._plan.active
        return [self.close(EndedBy.MAX_STEPS)] if full else []

    def close(self, ended_by: EndedBy) -> Close:
        """The open window ends now, whatever the plan says."""
        assert self._open is not None, "a window is open"
        closed = Close(self._open, ended_by, self.window_steps)
        self._open = self._open_stage = None
        self._counts = self._prepared = False
        self._next_start = self.steps_done + self._plan.first_step
        return closed

    def give_up(self) -> None:
        """No further window opens."""
        self._names.clear()
        self._pending.clear()

    def _begin_by_count(self) -> list[Action]:
        self._counts = True
        if self._open is not None or not self._names:
            return []
        actions: list[Action] = []
        if not self._prepared and self._plan.warmup and self.steps_done >= self._next_start - self._plan.warmup:
            self._prepared = True
            actions.append(Prepare(self._names[0]))
        if self.steps_done >= self._next_start:
            actions.append(self._opened(self._names[0]))
        return actions

    def _begin_by_stage(self, stage: Phase | None) -> list[Action]:
        """Steps of no stage neither count nor change the stage."""
        self._counts = stage is not None
        if stage is None:
            return []
        wanted = window_of(stage, self._plan.stages)
        actions: list[Action] = []
        if self._open is not None:
            if wanted is self._open_stage:
                return []
            actions.append(self.close(EndedBy.STAGE_CHANGE))
        if wanted in self._pending and self.steps_done >= self._next_start:
            self._pending.remove(wanted)
            self._open_stage = wanted
            actions.append(self._opened(next(name for name in self._names if name.split("-")[0] == wanted.value)))
        self._counts = self._open is not None
        return actions

    def _opened(self, name: str) -> Open:
        self._names.remove(name)
        self._open = name
        self.window_steps = 0
        return Open(name)
