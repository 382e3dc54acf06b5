"""What a sync known from source cost in a recorded run: the static finding and the trace's site, by place and rule."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from dsv4prof.model.finding import Finding, SourceFinding
from dsv4prof.sync import catalogue
from dsv4prof.sync.code.found import Found
from dsv4prof.sync.witness import same_file


class Cost(msgspec.Struct, frozen=True):
    """`cost_ns` is host time blocked a step (in all where the trace has no steps), None where no device was recorded.

    `idle_ns` is the device time lost after it, in the same unit. `shared` counts the other statements of the function
    that the trace cannot tell from this one.
    """

    cost_ns: int | None
    idle_ns: int | None
    per_step: float | None
    reads: int
    shared: int = 0
    reason: str = ""


def costs_of(found: Sequence[Found | SourceFinding], reads: Sequence[Finding]) -> list[Cost | None]:
    """For each of `found` its cost, or None where no site of the trace is its own.

    A site belongs to a statement of its file and rule: by line where the run knows the line, else by function, where
    every statement of that rule in the function shares the site. Without Python stacks a site's range may have the
    function's name; then the operators have to be the statement's as well.
    """
    owners: dict[int, list[int]] = {}
    for number, read in enumerate(reads):
        for index in [index for index, item in enumerate(found) if _same_place(item, read)]:
            owners.setdefault(index, []).append(number)
    shares = {number: sum(number in numbers for numbers in owners.values()) for number in range(len(reads))}
    return [
        _total([(reads[n], shares[n]) for n in owners[index]]) if index in owners else None
        for index in range(len(found))
    ]


def _same_place(found: Found | SourceFinding, read: Finding) -> bool:
    place = read.location
    if found.code != read.code:
        return False
    if place is None:
        return _last(found.function) in _ranges(read) and _same_operators(found, read)
    if not same_file(found.path, place.file):
        return False
    if place.line is not None:
        return found.line <= place.line <= found.end_line
    return place.function is not None and _last(found.function) == place.function


def _last(function: str) -> str:
    return function.rpartition(".")[2]


def _ranges(read: Finding) -> set[str]:
    names = {read.evidence.get("region"), *read.evidence.get("spans", ())}
    return {name for name in names if name}


def _same_operators(found: Found | SourceFinding, read: Finding) -> bool:
    """The operators of the statement's form are among the site's, in their order; a form without any fits none."""
    event = catalogue.form(found.form).event if found.form else ()
    chain = iter(read.evidence.get("ops", ()))
    return bool(event) and all(op in chain for op in event)


def _total(sites: Sequence[tuple[Finding, int]]) -> Cost:
    """Several sites of one statement (other phases, other operator chains) add up."""
    costs = [read.cost_ns for read, _ in sites if read.cost_ns is not None]
    idle = [value for read, _ in sites if (value := _idle(read)) is not None]
    rates = [rate for read, _ in sites if (rate := read.evidence.get("per_step")) is not None]
    return Cost(
        cost_ns=sum(costs) if costs else None,
        idle_ns=sum(idle) if idle else None,
        per_step=round(sum(rates), 2) if rates else None,
        reads=sum(int(read.evidence.get("reads") or 0) for read, _ in sites),
        shared=max(share for _, share in sites) - 1,
        reason=sites[0][0].cost_reason or "",
    )


def _idle(read: Finding) -> int | None:
    return read.evidence.get("gpu_idle_per_step_ns" if read.evidence.get("per_step") else "gpu_idle_ns")
