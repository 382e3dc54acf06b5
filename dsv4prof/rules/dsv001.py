"""DSV001: a suppression that suppresses nothing."""

from __future__ import annotations

from dsv4prof.model.finding import Severity
from dsv4prof.rules.rule import Rule

RULE = Rule(
    code="DSV001",
    name="unused-suppression",
    severity=Severity.WARNING,
    summary="a comment allows a finding that is not there",
    doc="An allowance outlives the code that it was written for, and would silently allow the next fault on that "
    "line. It also stands for allowances without a reason and with a code that does not exist.",
    source="A `# dsv4prof: allow[DSV105] reason` on or above a statement without such a finding.",
    bad="total = sum(lens_list)  # dsv4prof: allow[DSV101] read once a batch",
    good="total = sum(lens_list)",
    fix="remove the comment, or correct its code",
    unsafe="where the finding exists only on another torch version or platform: keep the comment, and say so in it",
)
