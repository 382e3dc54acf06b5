"""The answer to "may this sync go?", for what a run exercised: what it protects, and what would do instead.

Nothing here says that a removal is safe: a run in which nothing appears has only not exercised what the sync protects.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal

import msgspec

from dsv4prof.sync.runtime.hazards.hazard import Hazard
from dsv4prof.sync.runtime.hazards.log import Log, Total
from dsv4prof.sync.runtime.hazards.replay import Place, Wait, without

Answer = Literal[
    "protects", "size would be padded", "brings a value", "protects nothing exercised", "does not wait", "not exercised"
]
_EXPLICIT = frozenset({"Event.synchronize", "Stream.synchronize", "synchronize", "Event.query"})
_EXPANSION = "aten::repeat_interleave"
_NAMED = 4


class Candidate(msgspec.Struct, frozen=True):
    """A host integer near an expansion: in how many of `calls` it was the exact total."""

    name: str
    equal: int
    calls: int


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """`waits` were made at the place or in what it calls; `protects` appears without them, `own` is about what the
    waiting call brings. `exact` host integers were the total in every call, `padded` ones in some only.
    """

    answer: Answer
    sentence: str
    place: str
    waits: list[Wait]
    protects: list[Hazard]
    own: list[Hazard]
    exact: list[Candidate]
    padded: list[Candidate]
    instead: list[str]
    steps: int


def explain(log: Log, place: Place) -> Explanation:
    """What the syncs of a place protect in a recorded run."""
    run = without(log, place)
    exact, padded = _candidates(run.totals)
    expands = any(wait.op == _EXPANSION for wait in run.waits)
    answer, sentence = _answer(place, run.hits, run.waits, run.protects, exact, padded if expands else [])
    return Explanation(
        answer=answer,
        sentence=sentence,
        place=str(place),
        waits=run.waits,
        protects=run.protects,
        own=run.own,
        exact=exact,
        padded=padded,
        instead=_instead(run.waits, run.protects, run.own, exact),
        steps=log.steps,
    )


def _answer(
    place: Place,
    hits: int,
    waits: Sequence[Wait],
    protects: Sequence[Hazard],
    exact: Sequence[Candidate],
    padded: Sequence[Candidate],
) -> tuple[Answer, str]:
    times = sum(wait.times for wait in waits)
    if not hits:
        return "not exercised", f"nothing was done at {place} in this run, so nothing is known of it"
    if not waits:
        return "does not wait", f"{place} was reached {_count(hits, 'time')}, and the host never waited there"
    if protects:
        kinds = ", ".join(f"{count} {code}" for code, count in sorted(Counter(each.code for each in protects).items()))
        return "protects", f"unsafe to remove: without its {_count(times, 'wait')} this run has {kinds}"
    if padded and not exact:
        first = padded[0]
        return (
            "size would be padded",
            f"unsafe to replace by a size at hand: {first.name} was the exact total in {first.equal} of "
            f"{_count(first.calls, 'call')}, and no other integer nearby in all of them",
        )
    exercised = f"its {_count(times, 'wait')} protected nothing that this run exercised"
    if any(wait.op not in _EXPLICIT for wait in waits):
        return "brings a value", f"{exercised}; it brings a value or size, which has to come from elsewhere"
    return "protects nothing exercised", f"{exercised}; that is no proof for what it did not exercise"


def _candidates(totals: Sequence[Total]) -> tuple[list[Candidate], list[Candidate]]:
    calls = sum(total.calls for total in totals)
    equal: Counter[str] = Counter()
    for total in totals:
        equal.update(total.equal)
    found = [Candidate(name, count, calls) for name, count in equal.most_common()]
    exact = [each for each in found if each.equal == calls]
    return exact, [each for each in found if each.equal < calls]


def _instead(
    waits: Sequence[Wait], protects: Sequence[Hazard], own: Sequence[Hazard], exact: Sequence[Candidate]
) -> list[str]:
    """The cheaper things that would have to be there, without doubles."""
    lines = {hazard.order: None for hazard in (*protects, *own)}
    if any(wait.op == _EXPANSION for wait in waits):
        names = ", ".join(each.name for each in exact[:_NAMED])
        told = f"; in all {exact[0].calls} calls it was {names}" if exact else "; no integer nearby was it in all calls"
        lines[f"output_size=, an exact total from the host{told}"] = None
    elif any(wait.op not in _EXPLICIT for wait in waits):
        lines["the value from a mirror on the host, or the work that needs it on the device"] = None
    return list(lines)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")
