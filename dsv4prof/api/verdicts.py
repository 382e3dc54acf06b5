"""The exit status that findings ask for. Apart from the analyses, which load much more."""

from __future__ import annotations

from collections.abc import Sequence

from dsv4prof.api.words import plural
from dsv4prof.errors import UsageError
from dsv4prof.model.finding import Finding, Severity
from dsv4prof.model.report import Verdict


def verdict(findings: Sequence[Finding], fail_on: str) -> Verdict:
    """Exit status 1 when a finding is at least as severe as `fail_on`; `never` reports without judging."""
    counts = {severity: sum(f.severity is severity for f in findings) for severity in reversed(Severity)}
    summary = ", ".join(plural(count, severity.value) for severity, count in counts.items() if count) or "no findings"
    if fail_on == "never":
        return Verdict(exit_code=0, summary=summary)
    if fail_on not in {severity.value for severity in Severity}:
        known = ", ".join(severity.value for severity in Severity)
        raise UsageError(f"fail_on is {fail_on!r}", hint=f"one of {known}, never")
    limit = Severity(fail_on).rank
    failed = any(finding.severity.rank >= limit for finding in findings)
    return Verdict(exit_code=int(failed), summary=f"{summary}; fails on {fail_on}")
