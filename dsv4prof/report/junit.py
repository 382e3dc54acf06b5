"""JUnit XML, for servers that know nothing else: a test case for each finding, failed where it is worse than a note."""

from __future__ import annotations

import re
from xml.sax.saxutils import escape, quoteattr

from dsv4prof.model.finding import Finding, Severity, SourceFinding
from dsv4prof.model.report import Report
from dsv4prof.report.source import place

# XML 1.0 has no place for these, not even escaped.
_FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render_junit(report: Report) -> str:
    """One suite. Notes are skipped tests, files that could not be read are errors; a clean report has one passed test,
    because servers take an empty suite for a broken one."""
    cases = [_unread(check.message) for check in report.checks if check.ok is False]
    cases += [_case(finding) for finding in report.findings]
    failures = sum(finding.severity is not Severity.NOTE for finding in report.findings)
    notes = len(report.findings) - failures
    errors = sum(check.ok is False for check in report.checks)
    clean = [f"  <testcase classname={_attribute(report.kind)} name={_attribute(report.verdict.summary)}/>"]
    name = f"dsv4prof {report.provenance.command}"
    count = f'tests="{len(cases or clean)}" failures="{failures}" errors="{errors}" skipped="{notes}"'
    body = "\n".join(cases or clean)
    return (
        f'<?xml version="1.0" encoding="UTF-8"?>\n<testsuite name={_attribute(name)} {count}>\n{body}\n</testsuite>\n'
    )


def _case(finding: Finding) -> str:
    file = finding.location.file if finding.location else ""
    line = f' line="{finding.location.line}"' if finding.location and finding.location.line else ""
    where = place(finding) if isinstance(finding, SourceFinding) else str(finding.location or "")
    name = f"{finding.code} {where}".strip()
    head = f"  <testcase classname={_attribute(file or 'report')} name={_attribute(name)}"
    head += f" file={_attribute(file)}{line}>" if file else ">"
    if finding.severity is Severity.NOTE:
        return f"{head}\n    <skipped message={_attribute(finding.message)}/>\n  </testcase>"
    return (
        f"{head}\n    <failure type={_attribute(finding.code)} message={_attribute(finding.message)}>"
        f"{_text(_details(finding))}</failure>\n  </testcase>"
    )


def _details(finding: Finding) -> str:
    lines = []
    if isinstance(finding, SourceFinding):
        lines += [f"level: {finding.level}", f"why: {finding.reason}"]
        if finding.hot_path:
            lines.append("hot: " + " -> ".join(step.text for step in finding.hot_path))
    if finding.fix:
        lines.append(f"fix: {finding.fix}")
    return "\n".join(lines)


def _unread(message: str) -> str:
    name = _attribute(message)
    return f'  <testcase classname="input" name={name}>\n    <error message={name}/>\n  </testcase>'


def _attribute(text: str) -> str:
    return quoteattr(_FORBIDDEN.sub("?", text))


def _text(text: str) -> str:
    return escape(_FORBIDDEN.sub("?", text))
