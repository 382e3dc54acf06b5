"""A workload that is recorded goes on until its plan is over, whatever became of the recording.

All ranks of a run have to make the same steps, or the one that stopped first leaves the others in a collective. So the
plan's own counting says when the run is over: a rank that the plan leaves out, that hit its size limit, or whose
profiler failed, follows it like the others.
"""

from __future__ import annotations

from dsv4prof.model.phase import Phase
from dsv4prof.recorder.manager import Recorder
from dsv4prof.recorder.plan import RecordPlan
from dsv4prof.recorder.trigger import Trigger

_WHOLE_STEPS = (Phase.PREFILL, Phase.DECODE)


class FollowedPlan:
    """Told of every step, or of every phase when the plan names a part of a step, by the engine's hooks."""

    def __init__(self, plan: RecordPlan, recorder: Recorder) -> None:
        self._trigger = Trigger(plan)
        self._recorder = recorder
        self.by_phase = follows_phases(plan)

    @property
    def recording(self) -> bool:
        return self._recorder.window is not None

    @property
    def finished(self) -> bool:
        """No window of the plan is open and none will open."""
        return self._trigger.finished

    @property
    def window(self) -> str | None:
        """The window that the plan has open now."""
        return self._trigger.window

    def begin_step(self, stage: object) -> None:
        self._trigger.begin(stage)
        self._recorder.begin_step(stage)

    def end_step(self) -> None:
        self._trigger.end()
        self._recorder.end_step()


def follows_phases(plan: RecordPlan) -> bool:
    """Whether the plan's stages are parts of the engine's steps, which are of the kinds prefill and decode."""
    return any(stage not in _WHOLE_STEPS for stage in plan.stages)
