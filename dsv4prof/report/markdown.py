"""Markdown for a comment on a pull request. Its first line is a hidden mark, so that a bot finds the comment again and
updates it in place."""

from __future__ import annotations

import re
from collections.abc import Iterable

from dsv4prof.model.finding import Finding, SourceFinding
from dsv4prof.model.report import Report, Section
from dsv4prof.report import numbers

_MARKS = {"audit": "sync-audit", "audit-statistics": "sync-audit"}
_TITLES = {"audit": "Sync audit", "audit-statistics": "Sync audit"}
# A comment holds 65,536 characters. What does not fit is counted.
_ROOM = 60_000
_CODE = re.compile(r"(`[^`]*`)")


def render_markdown(report: Report) -> str:
    """Title with the verdict, findings as one table, tables, notes. Nothing in it mentions people or other issues."""
    mark = _MARKS.get(report.kind, report.kind)
    title = _TITLES.get(report.kind, f"dsv4prof {report.kind}")
    blocks = [f"<!-- dsv4prof:{mark} -->\n### {title}: {plain(report.verdict.summary)}"]
    checks = [f"- {'ok' if check.ok else 'failed'}: {plain(check.message)}" for check in report.checks if not check.ok]
    if checks:
        blocks.append("\n".join(checks))
    if report.findings and report.kind not in ("audit-statistics", "audit-trace"):
        blocks.append(_findings(report.findings))
    blocks += [_section(section) for section in report.sections]
    if report.notes:
        blocks.append("\n".join(f"- {plain(note)}" for note in report.notes))
    return "\n\n".join(blocks) + "\n"


def _findings(findings: list[Finding]) -> str:
    head = ["", "where", "what", "proof", "cost", "fix"]
    lines = _head(head)
    used = 0
    for place, finding in enumerate(findings):
        row = _line(_cells(finding))
        used += len(row) + 1
        if used > _ROOM:
            left = len(findings) - place
            return "\n".join([*lines, "", f"{left:,} more do not fit into a comment; `--format json` has all."])
        lines.append(row)
    return "\n".join(lines)


def _cells(finding: Finding) -> list[str]:
    status, proof = finding.severity.value, ""
    if isinstance(finding, SourceFinding):
        status = finding.status or status
        proof = plain(finding.proof or f"{finding.level}: {finding.reason}")
        proof += f"; {plain(finding.ran)}" if finding.ran else ""
    cost, rate = numbers.NOTHING, finding.evidence.get("per_step")
    if finding.cost_ns is None and rate and isinstance(finding, SourceFinding):
        cost = f"{rate:g} reads/step"
    elif finding.cost_ns is not None:
        cost = numbers.time(finding.cost_ns) + ("/step" if finding.evidence.get("per_step") else "")
    fix = plain(finding.fix) if finding.fix else numbers.NOTHING
    return [status, _where(finding), f"{plain(finding.message)} ({finding.code})", proof, cost, fix]


def _where(finding: Finding) -> str:
    place = finding.location
    if place is None:
        return numbers.NOTHING
    at = f"`{_code(place.file if place.line is None else f'{place.file}:{place.line}')}`"
    inside = f" in `{_code(place.function)}`" if place.function else ""
    return at + inside + (" (hot)" if isinstance(finding, SourceFinding) and finding.hot else "")


def _section(section: Section) -> str:
    lines = [f"**{plain(section.title)}**", ""] if section.title else []
    if section.lead:
        lines += [plain(section.lead), ""]
    if section.rows:
        lines += _head([plain(column.title) for column in section.columns])
        lines += [
            _line(plain(numbers.cell(row.get(column.key), column.unit)) for column in section.columns)
            for row in section.rows
        ]
    if section.note:
        lines += ["", plain(section.note)]
    return "\n".join(lines)


def _head(titles: list[str]) -> list[str]:
    return [_line(titles), "|" + "---|" * len(titles)]


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def plain(text: str) -> str:
    """Text that stays in its cell and means nothing to the host: no markup, no mention, no link to an issue.

    What stands between backticks stays code.
    """
    parts = _CODE.split(" ".join(text.split()))
    return "".join(f"`{_code(part[1:-1])}`" if _CODE.fullmatch(part) else _outside(part) for part in parts)


def _code(text: str) -> str:
    """Inside backticks only the bar of a table still means something."""
    return _visible(" ".join(text.split())).replace("`", "'").replace("|", "\\|")


def _visible(text: str) -> str:
    """Without what a name of a file can turn a line round with, or colour it."""
    return text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)


def _outside(text: str) -> str:
    text = _visible(text)
    for character, entity in (("&", "&amp;"), ("<", "&lt;"), ("#", "&#35;"), ("@", "&#64;"), ("|", "\\|")):
        text = text.replace(character, entity)
    return re.sub(r"([*_\[\]`~])", r"\\\1", text)
