"""Engine steps and their phases, from the record_function names in a trace.

The engine target writes `dsv4.step#N` and `dsv4.phase ...`. Other traces have `step[DECODE bs=15]` (SGLang) or
`execute_context_0(0)_generation_4(4)` (vLLM), where one slice is one forward, or `ProfilerStep#N` (torch's schedule);
those are used when nothing better is there.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from itertools import pairwise

import msgspec

from dsv4prof.model.annotation import Annotation, parse_annotation, whole_number
from dsv4prof.model.event import Slice
from dsv4prof.model.phase import Phase
from dsv4prof.model.trace import PhaseSpan, StepSpan

_FORWARD = re.compile(r"^step\[(?P<mode>\w+)(?: (?P<facts>[^\]]*))?\]$")
_EXECUTE = re.compile(r"^execute_(?:\d+_)?context_(?P<context>\d+)\(.*\)_generation_(?P<generation>\d+)\(")
_PROFILER_STEP = re.compile(r"^ProfilerStep#(\d+)$")
_REQUESTS = re.compile(r"\bbs=(\d+)")
_ALONE = (Phase.PREFILL, Phase.DECODE)
_MODES = {
    "EXTEND": Phase.PREFILL,
    "PREFILL": Phase.PREFILL,
    "MIXED": Phase.PREFILL,
    "DECODE": Phase.DECODE,
    "DRAFT": Phase.DRAFT,
    "VERIFY": Phase.TARGET_VERIFY,
    "TARGET_VERIFY": Phase.TARGET_VERIFY,
    "DRAFT_EXTEND": Phase.DRAFT_EXTEND,
    "DRAFT_EXTEND_V2": Phase.DRAFT_EXTEND,
    "IDLE": Phase.IDLE,
}


class Accepted(msgspec.Struct, frozen=True):
    """A marker after a verify: `tokens` output tokens for `requests` requests, bonus tokens included."""

    at_ns: int
    requests: int
    tokens: int


def find_steps(slices: list[Slice], rank: int) -> list[StepSpan]:
    """Steps of one rank by time, each with its phases by time; empty when the trace names none."""
    ranges = [event for event in slices if event.category == "user_annotation"]
    parsed = [(event, note) for event in ranges if (note := parse_annotation(event.name)) is not None]
    phases = [_own_phase(event, note) for event, note in parsed if note.kind == "phase"]
    accepted = [a for event, note in parsed if (a := _accepted(event, note))]
    steps = [_own_step(event, note, rank) for event, note in parsed if note.kind == "step"]
    if steps:
        return _with_accepted(_nest(steps, phases), accepted)
    forwards = [phase for event in ranges if (phase := _forward(event)) is not None]
    forwards = forwards or [phase for event in ranges if (phase := _execute(event)) is not None]
    profiler = [step for event in ranges if (step := _profiler_step(event, rank)) is not None]
    if profiler:
        return _with_accepted(_nest(profiler, phases or forwards), accepted)
    return _group_forwards(forwards, rank)


def accepted_markers(slices: list[Slice]) -> list[Accepted]:
    """The acceptance markers of one rank, in order of time."""
    found = [
        marker
        for event in slices
        if event.category == "user_annotation"
        and event.name.startswith("dsv4.accepted")
        and (note := parse_annotation(event.name)) is not None
        and (marker := _accepted(event, note)) is not None
    ]
    return sorted(found, key=lambda marker: marker.at_ns)


def _accepted(event: Slice, note: Annotation) -> Accepted | None:
    requests, tokens = note.integer("requests"), note.integer("tokens")
    if note.kind != "accepted" or requests is None or tokens is None:
        return None
    return Accepted(event.start_ns, requests, tokens)


def _own_step(event: Slice, note: Annotation, rank: int) -> StepSpan:
    index = whole_number(note.subject) or 0
    return StepSpan(
        rank, index, event.start_ns, event.end_ns, (), note.integer("requests") or 0, None, note.fields.get("kind", "")
    )


def _own_phase(event: Slice, note: Annotation) -> PhaseSpan | None:
    try:
        phase = Phase(note.subject)
    except ValueError:
        return None
    graph = note.fields.get("graph")
    captured = None if graph is None else graph == "captured"
    return PhaseSpan(phase, event.start_ns, event.end_ns, captured, event.name)


def _forward(event: Slice) -> PhaseSpan | None:
    match = _FORWARD.match(event.name)
    phase = _MODES.get(match["mode"]) if match else None
    return None if phase is None else PhaseSpan(phase, event.start_ns, event.end_ns, None, event.name)


def _execute(event: Slice) -> PhaseSpan | None:
    """A forward with any context request counts as prefill, as the mixed batches of servers do."""
    match = _EXECUTE.match(event.name)
    if match is None:
        return None
    context, generation = whole_number(match["context"]), whole_number(match["generation"])
    if context is None or generation is None:
        return None
    phase = Phase.PREFILL if context else Phase.DECODE
    return PhaseSpan(phase, event.start_ns, event.end_ns, None, f"{event.name} bs={context + generation}")


def _profiler_step(event: Slice, rank: int) -> StepSpan | None:
    match = _PROFILER_STEP.match(event.name)
    number = whole_number(match[1]) if match else None
    return None if number is None else StepSpan(rank, number, event.start_ns, event.end_ns)


def _group_forwards(forwards: list[PhaseSpan], rank: int) -> list[StepSpan]:
    """Steps out of bare forwards: a prefill or a plain decode is one, and a speculative cycle is one.

    A cycle (draft, verify, draft extend, from whichever the window begins with) ends where a phase comes again. What
    the host does between the last forward of a step and the next step belongs to the step.
    """
    groups: list[list[PhaseSpan]] = []
    for forward in sorted(forwards, key=lambda phase: phase.start_ns):
        if not groups or _begins_step(forward, groups[-1]):
            groups.append([])
        groups[-1].append(forward)
    steps = [_step_of(group, index, rank) for index, group in enumerate(groups)]
    return [
        *(msgspec.structs.replace(step, end_ns=after.start_ns) for step, after in pairwise(steps)),
        *steps[-1:],
    ]


def _begins_step(forward: PhaseSpan, group: list[PhaseSpan]) -> bool:
    if forward.phase in _ALONE or any(held.phase is forward.phase for held in group):
        return True
    # After a prefill the draft layer catches up on the prompt; anything else is the next step.
    return group[0].phase in _ALONE and forward.phase is not Phase.DRAFT_EXTEND


def _step_of(group: list[PhaseSpan], index: int, rank: int) -> StepSpan:
    requests = _REQUESTS.search(group[0].label)
    kind = "prefill" if group[0].phase is Phase.PREFILL else "decode"
    end = max(phase.end_ns for phase in group)
    count = whole_number(requests[1]) if requests else None
    return StepSpan(rank, index, group[0].start_ns, end, tuple(group), count or 0, None, kind)


def _nest(steps: list[StepSpan], phases: list[PhaseSpan | None] | list[PhaseSpan]) -> list[StepSpan]:
    ordered = sorted((p for p in phases if p is not None), key=lambda phase: phase.start_ns)
    starts = [phase.start_ns for phase in ordered]
    nested = []
    for step in sorted(steps, key=lambda step: step.start_ns):
        inside = ordered[bisect_left(starts, step.start_ns) : bisect_left(starts, step.end_ns)]
        nested.append(msgspec.structs.replace(step, phases=tuple(inside)))
    return nested


def _with_accepted(steps: list[StepSpan], markers: list[Accepted]) -> list[StepSpan]:
    markers = sorted(markers, key=lambda marker: marker.at_ns)
    times = [marker.at_ns for marker in markers]
    result = []
    for step in steps:
        inside = markers[bisect_left(times, step.start_ns) : bisect_left(times, step.end_ns)]
        accepted = sum(marker.tokens for marker in inside) if inside else None
        result.append(msgspec.structs.replace(step, accepted=accepted))
    return result
