"""5xx: ranks and communication."""

from __future__ import annotations

from dsv4prof.model.finding import Severity
from dsv4prof.rules.rule import Rule

RULES = (
    Rule(
        code="DSV501",
        name="missing-ranks",
        severity=Severity.WARNING,
        summary="the files say that there are more ranks than were given",
        doc="Taken from the world size in the files. Figures over ranks cover only those that are there.",
    ),
    Rule(
        code="DSV502",
        name="rank-contradiction",
        severity=Severity.WARNING,
        summary="a file's name and its content name different ranks",
        doc="The name was believed, because serving with one GPU a process often writes rank 0 into every file. "
        "Check that "
        "no file was copied or overwritten.",
    ),
)
