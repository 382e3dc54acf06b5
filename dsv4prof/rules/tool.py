"""0xx: the tool itself."""

from __future__ import annotations

from dsv4prof.model.finding import Severity
from dsv4prof.rules.rule import Rule

RULES = (
    Rule(
        code="DSV002",
        name="profiler-not-released",
        severity=Severity.ERROR,
        summary="a stopped profiler is still alive",
        doc="After export nothing may refer to the profiler: an object that lives on in a reference cycle is destroyed "
        "by a later garbage collection, at a moment that nobody chose, and has crashed servers there (sglang #29202). "
        "The finding names who still holds it.",
    ),
)
