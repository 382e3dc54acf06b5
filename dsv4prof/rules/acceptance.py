"""7xx: acceptance of drafts."""

from __future__ import annotations

from dsv4prof.model.finding import Severity
from dsv4prof.rules.rule import Rule

RULES = (
    Rule(
        code="DSV701",
        name="impossible-acceptance",
        severity=Severity.ERROR,
        summary="acceptance markers say more tokens than a verify can give, or none",
        doc="A verify gives at least one token for each request, the bonus token. Fewer means that the markers or the "
        "engine's count are wrong; do not trust the acceptance length of this trace.",
    ),
)
