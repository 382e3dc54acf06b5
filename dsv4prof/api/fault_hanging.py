"""A hang as a server's log of steps and its other logs show it: which step, on what, after which change."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from dsv4prof import __version__
from dsv4prof.api.fault_findings import hang_findings
from dsv4prof.api.fault_logs import cut_notes, messages_of, text_of
from dsv4prof.api.fault_sections import messages_section
from dsv4prof.errors import InputError
from dsv4prof.faultrecord.hang import Hang, diagnose
from dsv4prof.faultrecord.metadata import is_judged
from dsv4prof.faultrecord.steplog import StepLog, read_step_log
from dsv4prof.model.finding import Severity
from dsv4prof.model.report import Check, Provenance, Report, Verdict

# A step takes far more memory than its line.
MOST_STEP_BYTES = 48 << 20
_MOST_METADATA = 100
NO_SYNCHRONIZE = (
    "a profiler of the hung process must not be stopped with a device synchronize, which would hang too: dsv4prof "
    "waits a bounded time, ends the process and keeps the CPU part"
)


def fault_hang(steps: Path, *, logs: Sequence[Path] = ()) -> Report:
    """Judge a server's log of steps and its other logs: which step hung, on what, after which change.

    Raises InputError for a file without steps.
    """
    log = read_step_log(text_of(steps, most=MOST_STEP_BYTES))
    if log is None:
        raise InputError(
            f"{steps} has no steps", hint='a line a step: {"step": 7, "t": 0.4, "running": 3, "ctx_lens": [..]}'
        )
    return hang_report(steps, log, logs)


def hang_report(path: Path, log: StepLog, logs: Sequence[Path]) -> Report:
    messages = messages_of(logs)
    hang = diagnose(log, messages)
    findings = hang_findings(hang, path)
    bad = any(finding.severity is not Severity.NOTE for finding in findings)
    notes = [*cut_notes([path], most=MOST_STEP_BYTES), *cut_notes(logs)]
    if hang.hung:
        notes += [hang.suspicion, *hang.ranks, NO_SYNCHRONIZE]
    return Report(
        kind="hang",
        provenance=Provenance(
            command="fault hang", inputs=[str(path), *map(str, logs)], versions={"dsv4prof": __version__}
        ),
        checks=_hang_checks(hang, log),
        sections=[messages_section(messages)] if messages else [],
        findings=findings,
        notes=notes,
        verdict=Verdict(exit_code=int(bad), summary=_hang_summary(hang)),
        data={"hang": _hang_data(hang)},
    )


def _hang_summary(hang: Hang) -> str:
    if not hang.hung:
        fault = f"; the logs name a fault: {hang.causes[0].text}" if hang.causes else ""
        return f"no hang: {hang.reason}{fault}"
    since = f" since t={hang.since_s:.2f}" if hang.since_s is not None else ""
    kernel = f": kernel {hang.kernel} running" if hang.kernel else ""
    age = f" for {hang.kernel_s:g} s" if hang.kernel and hang.kernel_s is not None else ""
    lasted = f", {hang.seconds:g} s so far" if hang.seconds is not None and not age else ""
    return f"hang at {hang.step.name if hang.step else 'a step'}{since}{kernel}{age}{lasted}"


def _hang_checks(hang: Hang, log: StepLog) -> list[Check]:
    checks = [Check(key="hang", ok=not hang.hung, message=_hang_summary(hang))]
    if hang.hung and hang.previous is not None and hang.step is not None:
        changed = "; ".join(hang.changed) or "nothing that the log shows"
        words = f"changed between {hang.previous.name} and {hang.step.name}: {changed}"
        checks.append(Check(key="changed", ok=None, message=words))
    for message in hang.consequences if hang.hung else ():
        words = f"a consequence, not the cause: {message.text}"
        checks.append(Check(key="consequence", ok=None, message=words))
    for stall in hang.stalls:
        words = f"{stall.seconds:g} s passed after {stall.after.name}, and then the steps went on"
        checks.append(Check(key="stall", ok=None, message=words))
    if log.unreadable:
        checks.append(
            Check(key="lines", ok=None, message=f"lines that are no JSON and were left out: {log.unreadable:,}")
        )
    if not hang.bad and not hang.earlier_bad:
        listed = any(is_judged(field) for step in log.steps for field in step.lists)
        words = "no length or offset in the log is impossible" if listed else "the log lists no lengths and no offsets"
        checks.append(Check(key="metadata", ok=True if listed else None, message=words))
    return checks


def _hang_data(hang: Hang) -> dict[str, Any]:
    """The facts for machines; what changed before and what was impossible first."""
    return {
        "hung": hang.hung,
        "reason": hang.reason,
        "step": hang.step.index if hang.step else None,
        "since_s": hang.since_s,
        "seconds": hang.seconds,
        "kernel": hang.kernel or None,
        "kernel_s": hang.kernel_s,
        "collective": hang.collective,
        "changed": list(hang.changed),
        "metadata": msgspec.to_builtins([*hang.bad, *hang.earlier_bad][:_MOST_METADATA]),
        "consequences": msgspec.to_builtins(hang.consequences),
        "causes": msgspec.to_builtins(hang.causes),
        "ranks": list(hang.ranks),
        "suspicion": hang.suspicion if hang.hung else None,
    }
