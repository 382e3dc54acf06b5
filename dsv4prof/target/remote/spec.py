"""What to record on a running server, checked before anything is asked of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import msgspec

from dsv4prof.errors import UsageError
from dsv4prof.model.phase import Phase
from dsv4prof.recorder.plan import RecordPlan
from dsv4prof.target.remote.facts import ServerFacts

Load = Literal["auto", "none"]
# SGLang's words for ours. "auto" is decided by the server's device.
_SGLANG_ACTIVITIES = {"cpu": "CPU", "gpu": "GPU", "mem": "MEM", "cuda_profiler": "CUDA_PROFILER"}
_DEVICE_ONLY = ("gpu", "mem", "cuda_profiler")
# A window of seconds is bounded in steps as well, so that a server whose client was killed stops by itself.
_MOST_STEPS_A_SECOND = 500
_MOST_SECONDS = 86400
_MOST_STEPS = 10_000_000
# Counted since the server's start: a thousand a second for a year are 3e10.
_LAST_STEP = 10**12


class AttachSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One recording of a server.

    With `plan.active` the server stops by itself, else after `seconds`. `output_dir` is a folder that this process and
    the server both see, `server_dir` its name on the server's side where that differs; without them it is the session's
    own. `patience` bounds in seconds every wait in which nothing comes nearer: for a first step, for files that grow.
    """

    url: str
    plan: RecordPlan
    seconds: float = 3.0
    load: Load = "auto"
    output_dir: Path | None = None
    server_dir: str | None = None
    patience: float = 60.0
    root: Path = Path("traces/local")
    name: str | None = None
    api_key: str | None = None
    settings: dict[str, Any] = {}
    command: list[str] = []

    def __post_init__(self) -> None:
        if not 0 < self.seconds <= _MOST_SECONDS:
            hint = f"more than 0, at most {_MOST_SECONDS}"
            raise UsageError(f"a recording of {self.seconds:g} seconds is impossible", hint=hint)
        if self.plan.active is not None and self.plan.active > _MOST_STEPS:
            raise UsageError(f"a recording of {self.plan.active} steps is impossible", hint=f"at most {_MOST_STEPS}")
        if self.plan.start_step is not None and self.plan.start_step > _LAST_STEP:
            raise UsageError(f"no server comes to step {self.plan.start_step}", hint=f"at most {_LAST_STEP}")
        if not 0 < self.patience <= _MOST_SECONDS:
            raise UsageError(f"a patience of {self.patience:g} seconds is impossible", hint="more than 0")
        if self.load not in ("auto", "none"):
            raise UsageError(f"unknown load {self.load!r}", hint="auto or none")
        if not self.plan.uses_torch_profiler:
            raise UsageError(
                f"{self.plan.activities!r} leaves no trace that could be collected", hint="add cpu or gpu"
            )
        if self.plan.stages and self.plan.start_step is not None:
            raise UsageError("a recording by stage begins with the stage, not at a step", hint="leave start_step out")

    @property
    def windows(self) -> tuple[str, ...]:
        return self.plan.window_names()

    def told(self, url: str, facts: ServerFacts) -> dict[str, Any]:
        """What was asked of which server, as a session keeps its settings: [value, source]. Never the key."""
        plan = self.plan
        asked = {
            "url": url,
            "steps": plan.active,
            "start_step": plan.start_step,
            "seconds": None if plan.active is not None else self.seconds,
            "by_stage": bool(plan.stages),
            "stages": ",".join(stage.value for stage in plan.stages) or None,
            "activities": plan.activities,
            "load": self.load,
            "output_dir": None if self.output_dir is None else str(self.output_dir),
            "patience": self.patience,
        }
        pairs = {name: [value, "attach"] for name, value in asked.items() if value is not None}
        return {**self.settings, **pairs, "server": [facts.name, "server"]}


def sglang_body(spec: AttachSpec, facts: ServerFacts, output_dir: str, profile_id: str) -> dict[str, Any]:
    """The request for SGLang's `/start_profile`. Raises UsageError for what that server cannot record."""
    plan = spec.plan
    if unsupported := [stage.value for stage in plan.stages if stage not in (Phase.PREFILL, Phase.DECODE)]:
        raise UsageError(f"SGLang knows no stage {unsupported[0]}", hint="prefill, decode")
    body: dict[str, Any] = {
        "output_dir": output_dir,
        "profile_id": profile_id,
        "activities": _sglang_activities(plan, facts),
        "with_stack": plan.with_stack,
        "record_shapes": plan.record_shapes,
        "merge_profiles": False,
        "num_steps": plan.active or max(100, int(spec.seconds * _MOST_STEPS_A_SECOND)),
    }
    if plan.stages:
        return {**body, "profile_by_stage": True, "profile_stages": [stage.value for stage in plan.stages]}
    # Without a step to start at, SGLang 0.5.23 puts a second profiler in the place of one that records, whose steps are
    # lost; with one it says that it is busy.
    return {**body, "start_step": max(1, plan.start_step or 1)}


def _sglang_activities(plan: RecordPlan, facts: ServerFacts) -> list[str]:
    on_cpu = facts.device == "cpu"
    if "auto" in plan.sources:
        return ["CPU", *([] if on_cpu else ["GPU"]), *(_word(word) for word in plan.sources if word != "auto")]
    if on_cpu and (wrong := [word for word in plan.sources if word in _DEVICE_ONLY]):
        raise UsageError(f"the server runs on its CPU: there is no {wrong[0]} to record", hint="--activities cpu")
    return [_word(word) for word in plan.sources]


def _word(word: str) -> str:
    if word not in _SGLANG_ACTIVITIES:
        raise UsageError(f"SGLang cannot be asked for {word!r}", hint="of " + ", ".join(_SGLANG_ACTIVITIES))
    return _SGLANG_ACTIVITIES[word]
