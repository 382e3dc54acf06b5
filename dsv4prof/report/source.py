"""Findings of an audit of source for a terminal: a block each, hot paths first."""

from __future__ import annotations

from collections.abc import Sequence

from dsv4prof.model.finding import SourceFinding, SourceStep
from dsv4prof.report import numbers
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
    head = f"{style.strong(place(finding))} {code}{status} {finding.level}{side(finding)}"
    if finding.hot_path:
        head += style.faint(f" (hot: {way(finding.hot_path)})")
    lines = [head, _INDENT + finding.message]
    if finding.reason and finding.reason != finding.message:
        lines.append(f"{_INDENT}why: {finding.reason}")
    lines += [f"{_INDENT}     {step}" for step in inference(finding)]
    if finding.proof:
        lines.append(f"{_INDENT}proof: {finding.proof}")
    if finding.ran:
        lines.append(f"{_INDENT}ran: {finding.ran}")
    if measured := cost(finding):
        lines.append(f"{_INDENT}cost: {measured}")
    if finding.fix:
        known = finding.fix_safety if finding.fix_safety not in (None, "none") else ""
        # The same result is not always ours to write: --fix does only what is proven of this very statement.
        said = ", ".join(word for word in (known, "automatic with --fix" if finding.automatic else "") if word)
        safety = f" ({said})" if said else ""
        lines.append(f"{_INDENT}fix: {finding.fix}{safety}")
    return lines


def cost(finding: SourceFinding) -> str:
    """What a session measured of it, with the reads a step where it measured no time; "" without a session."""
    evidence = finding.evidence
    if "session" not in evidence:
        return ""
    rate, reads = evidence.get("per_step"), evidence.get("reads", 0)
    often = f"{rate:g} reads a step" if rate else f"{reads:,} reads in all"
    if finding.cost_ns is None:
        return f"{often} ({finding.cost_reason})"
    idle = evidence.get("gpu_idle_per_step_ns" if rate else "gpu_idle_ns")
    lost = f", GPU idle {numbers.time(idle)} after" if idle else ""
    return f"{numbers.time(finding.cost_ns)} {'a step' if rate else 'in all'}{lost}, {often} ({finding.cost_reason})"


def place(finding: SourceFinding) -> str:
    """`path:line:column`, as editors and terminals link it, on one line whatever the file is called."""
    file = finding.location.file if finding.location else finding.path
    plain = file if file.isprintable() else "".join(c if c.isprintable() else "?" for c in file)
    return f"{plain}:{finding.line}:{finding.column}"


def side(finding: SourceFinding) -> str:
    """Which text the place is of, where that is not the one that is there."""
    if not finding.side:
        return ""
    return f" (in the old text; now line {finding.now_line})" if finding.now_line else " (in the old text; file gone)"


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
