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
    Rule(
        code="DSV503",
        name="rank-file-unreadable",
        severity=Severity.WARNING,
        summary="a rank's file could not be read at all and was left out",
        doc="The merge goes on without it and says so: an empty rank in its place would look like an idle one.",
    ),
    Rule(
        code="DSV504",
        name="rank-incomplete",
        severity=Severity.WARNING,
        summary="a rank of the session ended before its recording was whole",
        doc="The rank died, was interrupted or failed; its record in the session says which. What it had recorded is "
        "kept, and figures that compare ranks cover different windows.",
    ),
    Rule(
        code="DSV505",
        name="clocks-apart",
        severity=Severity.WARNING,
        summary="a rank's times lie hours away from those of the other ranks",
        doc="Its file has lost its base time, or its host's clock is wrong, or it belongs to another recording. On one "
        "axis such ranks do not meet, viewers lose digits of their times, and nothing that compares them is true.",
    ),
)
