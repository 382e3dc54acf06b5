"""The base time of a file that was cut before it: many writers put `baseTimeNanoseconds` behind the events.

Kineto floors the wall clock to a period of three months, so ranks of one run have one base, unless the run began at the
turn of a quarter. A cut rank without a base can therefore borrow it from another; without it, it would lie in 1970.
"""

from __future__ import annotations

from collections.abc import Sequence

from dsv4prof.trace.survey import Survey

# Times that need a base are below the period; times since 1970 are far above it.
PERIOD_NS = 200 * 86_400 * 10**9


def borrowed_base(surveys: Sequence[Survey]) -> tuple[int, int, set[int]] | None:
    """The base that whole ranks share, one rank that has it, and the places of cut ranks that lost theirs.

    None when nobody needs one or nobody can lend it.
    """
    lenders = [survey for survey in surveys if survey.facts.base_ns]
    bases = {survey.facts.base_ns for survey in lenders}
    needy = {place for place, survey in enumerate(surveys) if _needs(survey)}
    if len(bases) != 1 or not needy:
        return None
    return bases.pop(), lenders[0].facts.coordinates.rank, needy


def _needs(survey: Survey) -> bool:
    return not survey.facts.base_ns and not survey.facts.complete and survey.last_ns < PERIOD_NS
