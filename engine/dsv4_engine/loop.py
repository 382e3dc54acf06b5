"""The step loop: plan, launch, read, commit; with overlap, the next step is launched before this one is read.

While the device computes step n + 1, the host reads step n, decides who has ended, and plans. What step n + 1 computes
for a request that step n ended is dropped. Each launch has its step span; the read of the step before it happens within
the same span. A read with no launch beside it, at the end or before a retraction, has only the span of the read itself,
so that there are as many step spans as steps and none within another.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from dsv4_engine.hooks import StepHooks
from dsv4_engine.plan import StepOutcome, StepPlan
from dsv4_engine.scheduler.scheduler import Committed


class PendingStep(Protocol):
    """A step whose work is queued on the device; `read` waits for its tokens, once."""

    def read(self) -> StepOutcome: ...


class Planner(Protocol):
    """A `Scheduler`, or one that agrees with those of other replicas."""

    @property
    def has_work(self) -> bool: ...

    def plan(self, *, in_flight: bool = False) -> StepPlan | None: ...

    def commit(self, plan: StepPlan, outcome: StepOutcome) -> Committed: ...


class Launcher(Protocol):
    """Who computes plans, in the order in which they are launched."""

    @property
    def rows_per_request(self) -> int: ...

    def launch(self, plan: StepPlan) -> PendingStep: ...


@dataclass(frozen=True)
class Launched:
    """A step on its way. index: of its launch, from 0. rows: query rows of its target forward."""

    index: int
    plan: StepPlan
    rows: int
    pending: PendingStep


class StepLoop:
    """Makes one step after the other. An exception out of `launch` or `read` ends it: the caches are then unknown."""

    def __init__(self, scheduler: Planner, launcher: Launcher, hooks: StepHooks, *, overlap: bool) -> None:
        self._scheduler, self._launcher, self._hooks, self._overlap = scheduler, launcher, hooks, overlap
        self._in_flight: Launched | None = None
        self._launches = 0

    @property
    def has_work(self) -> bool:
        """Whether a step can be made or one is still to be read."""
        return self._in_flight is not None or self._scheduler.has_work

    @property
    def steps(self) -> int:
        """Steps launched so far."""
        return self._launches

    def step(self) -> tuple[Launched, Committed]:
        """Complete one step, the oldest that is not read; there must be work.

        With overlap, the first call launches two.
        """
        if not self._overlap:
            return self._whole(self._plan())
        done = self._in_flight
        if done is None:
            plan = self._plan()
            with self._span(plan):
                done = self._launch(plan)
        self._in_flight = None
        ahead = self._scheduler.plan(in_flight=True)
        if ahead is None:
            return done, self._commit(done)
        with self._span(ahead):
            self._in_flight = self._launch(ahead)
            return done, self._commit(done)

    def rows(self, plan: StepPlan) -> int:
        """Query rows of a plan's target forward."""
        return sum(chunk.length for chunk in plan.chunks) + len(plan.running) * self._launcher.rows_per_request

    def _whole(self, plan: StepPlan) -> tuple[Launched, Committed]:
        with self._span(plan):
            done = self._launch(plan)
            return done, self._commit(done)

    def _plan(self) -> StepPlan:
        plan = self._scheduler.plan()
        assert plan is not None, "nothing in flight, and nothing to plan"
        return plan

    def _span(self, plan: StepPlan) -> AbstractContextManager[object]:
        return self._hooks.step(self._launches, kind=plan.kind, requests=len(plan.requests), rows=self.rows(plan))

    def _launch(self, plan: StepPlan) -> Launched:
        launched = Launched(index=self._launches, plan=plan, rows=self.rows(plan), pending=self._launcher.launch(plan))
        self._launches += 1
        return launched

    def _commit(self, launched: Launched) -> Committed:
        return self._scheduler.commit(launched.plan, launched.pending.read())
