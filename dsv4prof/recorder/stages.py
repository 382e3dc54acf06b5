"""A step's stage by whatever name its program has for it.

Servers ask their own mode whether it "is prefill" or "is decode", and a verify step answers wrongly: it has the shape
of a prefill (SGLang's TARGET_VERIFY), so a decode window never filled. Here a mode is looked up by its name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from dsv4prof.errors import UsageError
from dsv4prof.model.phase import Phase
from dsv4prof.recorder.wording import warn

STAGES = (Phase.PREFILL, Phase.DECODE, Phase.TARGET_VERIFY, Phase.DRAFT, Phase.DRAFT_EXTEND)
# Parts of a decode step with speculative decoding: a window of `decode` takes them in, unless one has its own window.
_PARTS_OF_DECODE = frozenset({Phase.TARGET_VERIFY, Phase.DRAFT, Phase.DRAFT_EXTEND})
_BY_MODE = {
    **{phase.value: phase for phase in STAGES},
    "extend": Phase.PREFILL,
    "mixed": Phase.PREFILL,
    "split_prefill": Phase.PREFILL,
    "dllm_extend": Phase.PREFILL,
    "draft_extend_v2": Phase.DRAFT_EXTEND,
    "target_extend": Phase.TARGET_VERIFY,
}
# Placeholder batches of servers: they run nothing of a stage.
_NO_STAGE = frozenset({"idle", "prebuilt", "dummy", "dummy_first", "none", ""})
_warned: set[str] = set()
# Modes that carry a number have no end.
_MOST_WARNINGS = 20


def stage_of(mode: object) -> Phase | None:
    """The stage of a mode: a Phase, its name, or SGLang's ForwardMode or that one's name, in any case.

    None for what belongs to no stage (IDLE, PREBUILT, None). An unknown mode is None as well and warned about once: a
    profiler does not end a server because of a mode that is younger than itself.
    """
    if mode is None:
        return None
    name = str(getattr(mode, "name", mode)).rsplit(".", 1)[-1].lower().replace("-", "_")
    if name in _NO_STAGE:
        return None
    stage = _BY_MODE.get(name)
    if stage is None and name not in _warned and len(_warned) < _MOST_WARNINGS:
        _warned.add(name)
        warn(f"no stage is known for the mode {name!r}: its steps count for none")
    return stage


def parse_stages(words: Iterable[str]) -> tuple[Phase, ...]:
    """Stages to record, by name. Raises UsageError for an unknown one or one that is named twice."""
    stages = []
    for word in words:
        try:
            stage = Phase(str(getattr(word, "value", word)).strip().lower().replace("-", "_"))
        except ValueError:
            stage = Phase.IDLE
        if stage is Phase.IDLE:
            raise UsageError(f"unknown stage {word!r}", hint="one of " + ", ".join(phase.value for phase in STAGES))
        if stage in stages:
            raise UsageError(f"the stage {stage.value} is named twice", hint="name each stage once; windows repeats it")
        stages.append(stage)
    return tuple(stages)


def window_of(stage: Phase | None, wanted: Collection[Phase]) -> Phase | None:
    """Which of the wanted stages takes a step of `stage` in."""
    if stage in wanted:
        return stage
    return Phase.DECODE if stage in _PARTS_OF_DECODE and Phase.DECODE in wanted else None
