"""GitHub's workflow commands: annotations on the lines of a pull request.

A step shows ten of a kind and drops the rest without a word, so the worst ten of each kind are written, in the order of
the report, and one notice says how many there are.
"""

from __future__ import annotations

from collections import Counter

from dsv4prof.model.finding import Finding, Severity, SourceFinding
from dsv4prof.model.report import Report
from dsv4prof.report.source import cost, place

_SHOWN = 10
_KIND = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "notice"}


def render_github(report: Report) -> str:
    """Commands for the findings, for files that could not be read, and a last notice with the verdict."""
    counts: Counter[str] = Counter()
    commands = [
        ("warning", f"::warning title=dsv4prof::{_data(check.message)}") for check in report.checks if check.ok is False
    ]
    commands += [(_KIND[finding.severity], _annotation(finding)) for finding in report.findings]
    lines = []
    # The verdict is a notice itself.
    room = {"error": _SHOWN, "warning": _SHOWN, "notice": _SHOWN - 1}
    for kind, command in commands:
        counts[kind] += 1
        if counts[kind] <= room[kind]:
            lines.append(command)
    hidden = sum(max(0, count - room[kind]) for kind, count in counts.items())
    more = f"; {hidden:,} more are not shown here" if hidden else ""
    lines.append(f"::notice title=dsv4prof::{_data(report.verdict.summary + more)}")
    return "\n".join(lines) + "\n"


def _annotation(finding: Finding) -> str:
    fields: dict[str, object] = {}
    where = finding.location
    source = finding if isinstance(finding, SourceFinding) else None
    if source is not None and source.side:
        # An annotation stands on the text that is there; of a file that is gone on none.
        if source.now_line:
            fields |= {"file": source.now_file, "line": source.now_line, "endLine": source.now_line}
    elif where is not None:
        fields["file"] = where.file
        if where.line:
            fields["line"] = where.line
            fields["endLine"] = where.end_line or where.line
    # Columns are only for ranges within one line.
    if source is not None and not source.side and source.line == source.end_line:
        fields |= {"col": source.column, "endColumn": source.end_column}
    fields["title"] = _title(finding)
    listed = ",".join(f"{key}={_property(str(value))}" for key, value in fields.items())
    return f"::{_KIND[finding.severity]} {listed}::{_data(_text(finding))}"


def _title(finding: Finding) -> str:
    if not isinstance(finding, SourceFinding):
        return finding.code
    words = [finding.code, finding.status, finding.level, "on a hot path" if finding.hot else ""]
    return " ".join(word for word in words if word)


def _text(finding: Finding) -> str:
    lines = [finding.message]
    if isinstance(finding, SourceFinding):
        if finding.side:
            lines.append(f"stood at {place(finding)} before the change")
        if finding.reason and finding.reason != finding.message:
            lines.append(f"why: {finding.reason}")
        if finding.proof:
            lines.append(f"proof: {finding.proof}")
        if measured := cost(finding):
            lines.append(f"cost: {measured}")
    if finding.fix:
        lines.append(f"fix: {finding.fix}")
    return "\n".join(lines)


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
