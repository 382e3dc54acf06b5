"""What one rank does: serve the workload to warm up, serve it timed, serve it recorded, and report."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from dsv4prof.model.session import CallSite, Outcome, Overhead, RankCoordinates
from dsv4prof.recorder.backends.kineto import KinetoBackend
from dsv4prof.recorder.manager import Recorder, State
from dsv4prof.recorder.overhead import measure_overhead
from dsv4prof.recorder.plan import RecordPlan
from dsv4prof.recorder.sink import RankSink
from dsv4prof.recorder.standalone import trace_metadata
from dsv4prof.target.control import RunInterruptedError
from dsv4prof.target.hooks import ProfilingHooks, SpanPass
from dsv4prof.target.window import place_window
from dsv4prof.target.workload import Pass, Workload

Progress = Callable[[str], None]


class RankServing:
    """The passes of one rank. Whatever ends it early, the rank's record says so and keeps what was recorded."""

    def __init__(
        self, workload: Workload, hooks: ProfilingHooks, sink: RankSink, *, facts: dict[str, Any], progress: Progress
    ) -> None:
        self._workload = workload
        self._hooks = hooks
        self._sink = sink
        self._facts = facts
        self._progress = progress
        self._timed: Pass | None = None

    def run(self, plan: RecordPlan | None) -> bool:
        """All passes; `plan` None serves without recording. False when the run was interrupted.

        An exception of the engine is raised again once the record is written.
        """
        try:
            self._warm_up(plan)
            self._timed = self._serve_timed()
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
            KinetoBackend(plan).warm_up()
            self._note_calls(spans.calls.call_sites(), spans.steps)

    def _note_calls(self, sites: list[CallSite], steps: int) -> None:
        self._sink.update(call_sites=sites, call_sites_steps=steps)

    def _serve_timed(self) -> Pass:
        self._progress("timing unprofiled steps")
        gc.collect()
        return self._workload.serve_whole()

    def _serve_recorded(self, plan: RecordPlan, timed: Pass) -> None:
        wait = place_window(plan, timed.kinds)
        placed = msgspec.structs.replace(plan, wait=wait)
        coordinates = self._sink.record.coordinates
        backend = KinetoBackend(placed, metadata=trace_metadata(coordinates, self._sink.folder))
        recorder = Recorder(placed, self._sink, backend)
        passed = Pass()
        waits = f"waiting {placed.first_step} steps, then " if placed.first_step else ""
        self._progress(f"{waits}recording {placed.active} steps")
        try:
            with recorder:
                self._hooks.annotate = recorder.state is State.RECORDING
                for _ in self._workload.serve_forever(passed):
                    recorder.step()
                    self._hooks.annotate = recorder.state is State.RECORDING
                    if recorder.state is State.RELEASED:
                        break
        finally:
            self._hooks.annotate = False
            self._sink.update(facts=self._all_facts(), overhead=self._overhead(timed, passed, placed))

    def _overhead(self, timed: Pass, passed: Pass, plan: RecordPlan) -> Overhead:
        window = passed.steps[plan.first_step : plan.end_step]
        return measure_overhead(
            [step.timing(profiled=False) for step in timed.steps] + [step.timing(profiled=True) for step in window]
        )

    def _all_facts(self) -> dict[str, Any]:
        served = self._timed.facts() if self._timed is not None else {}
        return {**self._facts, **served, "gates": self._hooks.gates()}

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
