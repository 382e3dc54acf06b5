"""How much the profiler itself cost: a trace of steps that took twice as long describes another program."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

from dsv4prof.model.session import Overhead


@dataclass(frozen=True)
class StepTiming:
    """One step's wall time, nanoseconds. Steps with the same `key` did the same work."""

    key: str
    duration_ns: int
    profiled: bool


def measure_overhead(timings: Iterable[StepTiming]) -> Overhead:
    """Profiled against unprofiled steps that did the same work.

    `ratio` is profiled time over unprofiled time (1.04 = 4 % slower): the median over profiled steps of its duration
    over the median unprofiled duration of its key, so that one stray step decides nothing. The totals are of matched
    steps only, each profiled step against its key's unprofiled median. `ratio` is None, with the reason, when nothing
    matches.
    """
    profiled: list[StepTiming] = []
    plain: dict[str, list[int]] = defaultdict(list)
    plain_steps = 0
    for timing in timings:
        if timing.profiled:
            profiled.append(timing)
        else:
            plain_steps += 1
            plain[timing.key].append(timing.duration_ns)
    matched = [step for step in profiled if plain.get(step.key)]
    base = {key: median(durations) for key, durations in plain.items()}
    ratios = [step.duration_ns / base[step.key] for step in matched if base[step.key] > 0]
    return Overhead(
        profiled_steps=len(profiled),
        unprofiled_steps=plain_steps,
        profiled_ns=sum(step.duration_ns for step in matched),
        unprofiled_ns=round(sum(base[step.key] for step in matched)),
        ratio=median(ratios) if ratios else None,
        reason=_reason(len(matched), len(profiled), plain_steps),
    )


def _reason(matched: int, profiled: int, plain: int) -> str:
    if not profiled:
        return "no step was profiled"
    if not plain:
        return "no unprofiled step was timed"
    if not matched:
        return f"none of {profiled} profiled steps did the same work as one of {plain} unprofiled steps"
    return f"{matched} of {profiled} profiled steps matched with unprofiled steps of the same work"
