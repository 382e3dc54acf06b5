"""One line a finding, for grep and for editors: `path:line:column: CODE level message`."""

from __future__ import annotations

from dsv4prof.model.finding import Finding, SourceFinding
from dsv4prof.model.report import Report
from dsv4prof.report.source import place, side


def render_concise(report: Report) -> str:
    """Findings in the order of the report, checks that failed before them; the verdict where there is neither."""
    lines = [check.message for check in report.checks if check.ok is False]
    lines += [_line(finding) for finding in report.findings]
    return "\n".join(lines or [report.verdict.summary]) + "\n"


def _line(finding: Finding) -> str:
    message = " ".join(finding.message.split())
    if isinstance(finding, SourceFinding):
        status = f" {finding.status}" if finding.status else ""
        hot = " hot" if finding.hot else ""
        return f"{place(finding)}: {finding.code}{status} {finding.level}{hot}{side(finding)} {message}"
    where = f"{finding.location}: " if finding.location else ""
    return f"{where}{finding.code} {finding.severity.value} {message}"
