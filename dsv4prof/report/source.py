"""Findings of an audit of source for a terminal: a block each, hot paths first."""

from __future__ import annotations

from collections.abc import Sequence

from dsv4prof.model.finding import SourceFinding, SourceStep
from dsv4prof.report.style import Style

_INDENT = "  "


def source_lines(findings: Sequence[SourceFinding], style: Style) -> list[str]:
    """Blocks in the order of the report, under a heading where hot ones end."""
    hot = [finding for finding in findings if finding.hot]
    cold = [finding for finding in findings if not finding.hot]
    groups = [("On hot paths", hot), ("Elsewhere", cold)] if hot and cold else [("", list(findings))]
    lines: list[str] = []
    for title, group in groups:
        if title:
            lines += ["", style.strong(title)] if lines else [style.strong(title)]
        for finding in group:
            lines += [*_separated(lines), *_block(finding, style)]
    return lines


def _separated(lines: list[str]) -> list[str]:
    return [""] if lines else []


def _block(finding: SourceFinding, style: Style) -> list[str]:
    code = style.severity(finding.severity, finding.code)
    status = f" {finding.status}" if finding.status else ""
    head = f"{style.strong(place(finding))} {code}{status} {finding.level}"
    if finding.hot_path:
        head += style.faint(f" (hot: {way(finding.hot_path)})")
    lines = [head, _INDENT + finding.message]
    if finding.reason and finding.reason != finding.message:
        lines.append(f"{_INDENT}why: {finding.reason}")
    lines += [f"{_INDENT}     {step}" for step in inference(finding)]
    if finding.proof:
        lines.append(f"{_INDENT}proof: {finding.proof}")
    if finding.fix:
        safety = f" ({finding.fix_safety})" if finding.fix_safety not in (None, "none") else ""
        lines.append(f"{_INDENT}fix: {finding.fix}{safety}")
    return lines


def place(finding: SourceFinding) -> str:
    """`path:line:column`, as editors and terminals link it, on one line whatever the file is called."""
    file = finding.location.file if finding.location else finding.path
    plain = file if file.isprintable() else "".join(c if c.isprintable() else "?" for c in file)
    return f"{plain}:{finding.line}:{finding.column}"


def way(steps: Sequence[SourceStep]) -> str:
    """`run_batch -> forward`: the functions' own names."""
    return " -> ".join(step.text.rpartition(".")[2] for step in steps)


def inference(finding: SourceFinding) -> list[str]:
    """Each step of the inference with its line, and its file where that is another one."""
    return [step.text + _at(step, finding.path) for step in finding.why]


def _at(step: SourceStep, path: str) -> str:
    if not step.line:
        return ""
    return f" (line {step.line})" if step.path == path else f" ({step.file}:{step.line})"
