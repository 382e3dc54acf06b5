"""3xx: graphs and phases."""

from __future__ import annotations

from dsv4prof.model.finding import Severity
from dsv4prof.rules.rule import Rule

RULES = (
    Rule(
        code="DSV301",
        name="phase-ran-eagerly",
        severity=Severity.NOTE,
        summary="a phase ran eagerly although graphs are there for it",
        doc="Every kernel of an eager phase is launched by the host. A captured phase is one launch. The finding "
        "names the "
        "reason that the graph gate gave, when the recording has it (sglang #29202: the gate of draft-extend knew "
        "only one "
        "backend). Captured graphs cost memory, so an eager phase can be a choice.",
    ),
)
