"""The report for a terminal: checks, a step's numbers in one line, findings worst first, tables, what to do next."""

from __future__ import annotations

from dsv4prof.model.report import Check, Metric, Report, Section
from dsv4prof.report import numbers
from dsv4prof.report.findings import finding_lines
from dsv4prof.report.style import Style
from dsv4prof.report.table import aligned

_STEP = "step.mean"
_P50 = "step.p50"
_P99 = "step.p99"
_PHASE = "phase."
# The line of a run says what its tables would; `analyze` prints them.
_WITHOUT_TABLES = frozenset({"run", "attach"})
# What was asked for is shown by every command.
_ASKED_FOR = frozenset({"texts"})
_TABLES_FIRST = frozenset({"merge", "sessions", "settings"})
_WITHOUT_FINDINGS = frozenset({"audit-statistics", "audit-trace"})
# What was counted is the result as much as what was found.
_ALWAYS_A_VERDICT = frozenset({"audit", "audit-statistics"})


def render_text(report: Report, *, color: bool = False) -> str:
    """Blocks separated by blank lines. Plain text when `color` is off; nothing is ever cut to fit a width."""
    style = Style(color)
    checks = [_check_line(check, style) for check in report.checks]
    shown = [each for each in report.sections if report.kind not in _WITHOUT_TABLES or each.key in _ASKED_FOR]
    tables = [_table(section, style) for section in shown]
    findings = [] if report.kind in _WITHOUT_FINDINGS else report.findings
    body = [_headline(report.metrics, style), finding_lines(findings, style), list(report.notes)]
    blocks = [*tables, checks, *body] if report.kind in _TABLES_FIRST else [checks, *body[:2], *tables, body[2]]
    if report.kind in _ALWAYS_A_VERDICT:
        blocks[-1].insert(0, _verdict(report, style))
    elif report.verdict.exit_code != 0 or not any(blocks):
        blocks.append([_verdict(report, style)])
    if report.next_command:
        blocks.append([f"Next: {report.next_command}"])
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def _check_line(check: Check, style: Style) -> str:
    mark = {True: style.good("✓"), False: style.bad("✗"), None: style.faint("-")}[check.ok]
    return f"{mark} {check.message}"


def _verdict(report: Report, style: Style) -> str:
    summary = report.verdict.summary
    return style.bad(summary) if report.verdict.exit_code else summary


def _headline(metrics: list[Metric], style: Style) -> list[str]:
    """The step with its phases in one unit, then every other number on a line of its own."""
    known = {metric.key: metric for metric in metrics}
    lines: list[str] = []
    step = known.get(_STEP)
    phases = [metric for metric in metrics if metric.key.startswith(_PHASE)]
    others = [m for m in metrics if m.key not in (_STEP, _P50, _P99) and not m.key.startswith(_PHASE)]
    if step is not None and isinstance(step.value, int):
        scale = numbers.time_scale(step.value)
        p99 = known.get(_P99)
        tail = f" (p99 {numbers.scaled(p99.value, scale)})" if p99 is not None and isinstance(p99.value, int) else ""
        parts = [style.strong(f"step {numbers.scaled(step.value, scale)} {scale[1]}") + tail]
        if phases:
            parts.append(" | ".join(f"{m.title} {numbers.scaled(_whole(m), scale)}" for m in phases))
        shown = [metric for metric in others if metric.value is not None]
        parts.extend(_named(metric) for metric in shown[:1])
        lines.append("   ".join(parts))
        others = [metric for metric in others if metric not in shown[:1]]
    lines.extend(_named(m) + (f" ({m.reason})" if m.reason and m.value is None else "") for m in others)
    return lines


def _whole(metric: Metric) -> int:
    return metric.value if isinstance(metric.value, int) else 0


def _named(metric: Metric) -> str:
    return f"{metric.title} {numbers.cell(metric.value, metric.unit)}"


def _table(section: Section, style: Style) -> list[str]:
    lines = [style.strong(section.title)] if section.title else []
    if section.lead:
        lines.append(section.lead)
    if section.rows:
        head = [column.title for column in section.columns]
        rows = [[numbers.cell(row.get(c.key), c.unit) for c in section.columns] for row in section.rows]
        right = [column.unit != "text" for column in section.columns]
        body = aligned([head, *rows], right)
        lines += [style.faint(body[0]), *body[1:]] if any(head) else body[1:]
    if section.note:
        lines.append(style.faint(section.note))
    return lines
