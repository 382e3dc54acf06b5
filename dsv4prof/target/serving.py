"""What one rank does: serve the workload to warm up, serve it timed, serve it recorded, and report."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from dsv4prof.model.session import CallSite, EndedBy, Outcome, Overhead, RankCoordinates
from dsv4prof.recorder.backends import Backend
from dsv4prof.recorder.backends.compose import make_backend
from dsv4prof.recorder.coordinates import trace_metadata
from dsv4prof.recorder.manager import Recorder
from dsv4prof.recorder.overhead import measure_overhead
from dsv4prof.recorder.plan import RecordPlan
from dsv4prof.recorder.sink import RankSink
from dsv4prof.recorder.states import State
from dsv4prof.target.control import LIMIT_REACHED, RunInterruptedError, request_stop
from dsv4prof.target.following import FollowedPlan, follows_phases
from dsv4prof.target.hooks import ProfilingHooks, SpanPass
from dsv4prof.target.window import place_window
from dsv4prof.target.workload import MadeStep, Pass, Workload

Progress = Callable[[str], None]
Served = Callable[[Mapping[int, Sequence[int]]], None]


class RankServing:
    """The passes of one rank. Whatever ends it early, the rank's record says so and keeps what was recorded.

    `facts` gives what the engine says of itself, each time that it is asked; `served` hears the timed pass's tokens by
    the number of their request, before anything is recorded.
    """

    def __init__(
        self,
        workload: Workload,
        hooks: ProfilingHooks,
        sink: RankSink,
        *,
        facts: Callable[[], dict[str, Any]],
        progress: Progress,
        served: Served = lambda outputs: None,
    ) -> None:
        self._workload = workload
        self._hooks = hooks
        self._sink = sink
        self._facts = facts
        self._progress = progress
        self._served = served
        self._timed: Pass | None = None

    def run(self, plan: RecordPlan | None) -> bool:
        """All passes; `plan` None serves without recording. False when the run was interrupted.

        An exception of the engine is raised again once the record is written.
        """
        try:
            self._warm_up(plan)
            self._timed = self._serve_timed()
            self._served(self._timed.outputs)
            if plan is None:
                self._sink.update(outcome=Outcome.COMPLETE, facts=self._all_facts())
            else:
                self._serve_recorded(plan, self._timed)
        except RunInterruptedError as interruption:
            self._settle(str(interruption))
            return False
        except BaseException as error:
            self._settle(str(error) or type(error).__name__)
            raise
        return True

    def _warm_up(self, plan: RecordPlan | None) -> None:
        """A whole pass, so that the timed one finds every cache and allocation as the recorded one will."""
        self._progress("warming up")
        spans = SpanPass() if plan is not None else None
        self._hooks.spans = spans
        try:
            self._workload.serve_whole()
        finally:
            self._hooks.spans = None
        if plan is not None and spans is not None:
            self._maker(plan)().warm_up()
            self._note_calls(spans.calls.call_sites(), spans.steps)

    def _note_calls(self, sites: list[CallSite], steps: int) -> None:
        self._sink.update(call_sites=sites, call_sites_steps=steps)

    def _serve_timed(self) -> Pass:
        self._progress("timing unprofiled steps")
        gc.collect()
        return self._workload.serve_whole()

    def _serve_recorded(self, plan: RecordPlan, timed: Pass) -> None:
        placed = plan
        if not plan.stages and plan.start_step is None:
            placed = msgspec.structs.replace(plan, wait=place_window(plan, timed.kinds))
        recorder = Recorder(placed, self._sink, self._maker(placed), mark_steps=follows_phases(placed))
        if placed.records(self._sink.record.coordinates):
            recorder.arm(begin=False)
        else:
            recorder.skip()
        self._progress(_intention(placed))
        followed = FollowedPlan(placed, recorder)
        profiled: list[MadeStep] = []
        try:
            with recorder:
                self._hooks.followed = followed
                self._serve_followed(followed, recorder, profiled, patience=2 * len(timed.steps))
        except RunInterruptedError as interruption:
            if str(interruption) != LIMIT_REACHED:
                raise
        finally:
            self._hooks.followed = None
            self._hooks.annotate = False
            self._sink.update(facts=self._all_facts(), overhead=_overhead(timed, profiled))

    def _serve_followed(
        self, followed: FollowedPlan, recorder: Recorder, profiled: list[MadeStep], *, patience: int
    ) -> None:
        """Serve until the plan is over, or no window was open for `patience` steps: a stage may never come.

        A rank whose limits have ended its recording early has all ranks end after a common step.
        """
        quiet, asked = 0, False
        for step in self._workload.serve_forever(Pass()):
            if self._hooks.annotate and not followed.by_phase:
                profiled.append(step)
            quiet = 0 if followed.window is not None else quiet + 1
            if not followed.by_phase:
                followed.end_step()
            if followed.finished or quiet > patience:
                return
            if not asked and _cut_by_limit(recorder):
                asked = True
                request_stop(self._sink.folder, LIMIT_REACHED)

    def _maker(self, plan: RecordPlan) -> Callable[[], Backend]:
        metadata = trace_metadata(self._sink.record.coordinates, self._sink.folder)
        return partial(make_backend, plan, metadata=metadata)

    def _all_facts(self) -> dict[str, Any]:
        served = self._timed.facts() if self._timed is not None else {}
        return {**self._facts(), **served, "gates": self._hooks.gates()}

    def _settle(self, reason: str) -> None:
        """The record of a rank that ended early: incomplete with what it has, or with nothing to show."""
        if self._sink.record.outcome is Outcome.RECORDING or self._sink.record.trace is None:
            self._sink.update(outcome=Outcome.INCOMPLETE, reason=reason, facts=self._all_facts())
        else:
            # The manager knows only that the block was left; why the engine left it is known here.
            self._sink.update(reason=reason)


def rank_sink(folder: Path, coordinates: RankCoordinates) -> RankSink:
    """The rank's part of the session, announced there before the model is loaded."""
    sink = RankSink(folder, coordinates)
    sink.update()
    return sink


def _overhead(timed: Pass, profiled: list[MadeStep]) -> Overhead:
    return measure_overhead(
        [step.timing(profiled=False) for step in timed.steps] + [step.timing(profiled=True) for step in profiled]
    )


def _intention(plan: RecordPlan) -> str:
    """What is about to be recorded, in words."""
    if plan.stages:
        stages = ", ".join(stage.value for stage in plan.stages)
        return f"recording {'a phase' if follows_phases(plan) else f'{plan.active} steps'} each of {stages}"
    first = plan.first_step if plan.start_step is None else plan.start_step
    waits = f"waiting {first} steps, then " if first else ""
    again = f", {plan.windows} times" if plan.windows > 1 else ""
    return f"{waits}recording {plan.active} steps{again}"


def _cut_by_limit(recorder: Recorder) -> bool:
    """Whether a limit has ended the whole recording."""
    over = recorder.state in (State.EXPORTING, State.RELEASED)
    limits = (EndedBy.SIZE_LIMIT, EndedBy.TIME_LIMIT)
    return over and any(window.ended_by in limits for window in recorder.record.windows)
