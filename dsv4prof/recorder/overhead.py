"""How much the profiler itself cost: a trace of steps that took twice as long describes another program."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median, quantiles

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
    steps only, each profiled step against its key's unprofiled median. `ratio_low` and `ratio_high` are the quartiles
    of the same ratios. All three are None, with the reason, when nothing matches.
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
    base = {key: median(durations) for key, durations in plain.items()}
    matched = [step for step in profiled if base.get(step.key, 0) > 0]
    ratios = [step.duration_ns / base[step.key] for step in matched]
    low, high = _quartiles(ratios)
    return Overhead(
        profiled_steps=len(profiled),
        unprofiled_steps=plain_steps,
        profiled_ns=sum(step.duration_ns for step in matched),
        unprofiled_ns=round(sum(base[step.key] for step in matched)),
        ratio=median(ratios) if ratios else None,
        reason=_reason(len(matched), len(profiled), plain_steps),
        matched=len(matched),
        ratio_low=low,
        ratio_high=high,
    )


def _quartiles(ratios: list[float]) -> tuple[float | None, float | None]:
    """The lower and the upper quartile, never outside what was measured."""
    if not ratios:
        return None, None
    if len(ratios) == 1:
        return ratios[0], ratios[0]
    low, _, high = quantiles(ratios, n=4, method="inclusive")
    return low, high


def _reason(matched: int, profiled: int, plain: int) -> str:
    if not profiled:
        return "no step was profiled"
    if not plain:
        return "no unprofiled step was timed"
    if not matched:
        return f"none of {profiled} profiled steps did the same work as one of {plain} unprofiled steps"
    return f"{matched} of {profiled} profiled steps matched with unprofiled steps of the same work"
