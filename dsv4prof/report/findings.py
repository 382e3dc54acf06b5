"""Findings as lines: measured ones by cost, reads of a run without a device by count, everything else in a sentence."""

from __future__ import annotations

from pathlib import PurePath

from dsv4prof.model.finding import Finding, Location, Severity, SourceFinding
from dsv4prof.report import numbers
from dsv4prof.report.source import source_lines
from dsv4prof.report.style import Style
from dsv4prof.report.table import aligned

_READS = "reads"
_MARK = {Severity.ERROR: "✗", Severity.WARNING: "!", Severity.NOTE: "-"}


def finding_lines(findings: list[Finding], style: Style) -> list[str]:
    """Lines in groups; within a group the order of the report."""
    source = [f for f in findings if isinstance(f, SourceFinding)]
    others = [f for f in findings if not isinstance(f, SourceFinding)]
    measured = [f for f in others if f.cost_ns is not None]
    reads = [f for f in others if f.cost_ns is None and _READS in f.evidence]
    plain = [f for f in others if f.cost_ns is None and _READS not in f.evidence]
    return [
        *_measured(measured, style),
        *_unmeasured_reads(reads, style),
        *_plain(plain, style),
        *source_lines(source, style),
    ]


def _measured(findings: list[Finding], style: Style) -> list[str]:
    """A wait outside every step has a cost in all, not a step, and is marked so."""
    if not findings:
        return []
    rows = [[_cost(f), f.code, f.message + _idle(f), _where(f)] for f in findings]
    return _colored([["cost/step", "rule", "what", "where"], *rows], findings, style)


def _cost(finding: Finding) -> str:
    text = numbers.time(finding.cost_ns or 0)
    return text if finding.evidence.get("per_step") else f"{text} in all"


def _idle(finding: Finding) -> str:
    """What the device lost, in the unit of the cost beside it; nothing where that is unknown or none."""
    evidence = finding.evidence
    idle = evidence.get("gpu_idle_per_step_ns" if evidence.get("per_step") else "gpu_idle_ns")
    return f", GPU idle {numbers.time(idle)} after" if idle else ""


def _unmeasured_reads(findings: list[Finding], style: Style) -> list[str]:
    if not findings:
        return []
    head = f"host reads ({findings[0].cost_reason})" if findings[0].cost_reason else "host reads"
    rows = [[_count(f), f.code, f.message, _where(f)] for f in findings]
    return [style.strong(head), *_colored(rows, findings, style)]


def _count(finding: Finding) -> str:
    """Reads a step, of the kind that has them where no other has."""
    per_step, kinds = finding.evidence.get("per_step"), finding.evidence.get("step_kinds") or []
    step = f"{kinds[0]} step" if len(kinds) == 1 else "step"
    return f"{per_step:g}/{step}" if per_step else f"{finding.evidence[_READS]:,} in all"


def _plain(findings: list[Finding], style: Style) -> list[str]:
    return [
        f"{style.severity(f.severity, _MARK[f.severity])} {f.code}  {f.message}"
        + (f"  {place(f.location)}" if f.location else "")
        for f in findings
    ]


def _colored(rows: list[list[str]], findings: list[Finding], style: Style) -> list[str]:
    """Alignment first: escapes have no width."""
    lines = aligned(rows, [True, False, False, False])
    body = len(rows) - len(findings)
    painted = [
        line.replace(f.code, style.severity(f.severity, f.code), 1)
        for line, f in zip(lines[body:], findings, strict=True)
    ]
    return [*(style.faint(line) for line in lines[:body]), *(f" {line}" if body == 0 else line for line in painted)]


def _where(finding: Finding) -> str:
    """Without a location the range in which it happened, else the kinds of step."""
    if finding.location is not None:
        return place(finding.location)
    kinds = [kind for kind in finding.evidence.get("step_kinds", ()) if kind]
    region = finding.evidence.get("region") or (f"{' and '.join(kinds)} steps" if kinds else None)
    return f"in {region}" if region else numbers.NOTHING


def place(location: Location | None) -> str:
    """`function, file.py:88`: the file's name is enough for a person, the JSON has its path."""
    if location is None:
        return numbers.NOTHING
    file = PurePath(location.file).name
    at = file if location.line is None else f"{file}:{location.line}"
    return f"{location.function}, {at}" if location.function else at
