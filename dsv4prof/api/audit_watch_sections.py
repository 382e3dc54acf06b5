"""Findings and tables of a watched command."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from dsv4prof import rules
from dsv4prof.errors import UsageError
from dsv4prof.model.finding import Finding, Location, Severity
from dsv4prof.model.report import Cell, Column, Metric, Section
from dsv4prof.model.syncs import Kind, SyncEvent
from dsv4prof.sync import catalogue
from dsv4prof.sync.runtime.watch.ran_log import Folder
from dsv4prof.sync.runtime.watch.sites import Site

_SHADOWS = "shadow tensors: no device was there to wait for"
_UNMEASURED = "no layer that measures time saw it"
_UNKNOWN = "DSV103"


def findings_of(sites: Sequence[Site], seen: Folder) -> list[Finding]:
    """One for each site that nobody allowed, in their order, then what was found besides syncs."""
    gpu = any(log.head.gpu for log in seen.logs)
    found = [_finding(site, gpu) for site in sites if not site.event.allowed_by and site.event.level != "allow"]
    return found + [finding for log in seen.logs for finding in log.findings]


def _finding(site: Site, gpu: bool) -> Finding:
    event, frame = site.event, site.frame
    evidence: dict[str, Any] = {
        "reads": site.times,
        "calls": site.calls,
        "kind": event.kind.value,
        "direction": event.direction,
        "op": event.op,
        "reason": event.reason,
        "form": event.form,
        "shapes": [list(shape) for shape in event.shapes],
        "region": event.region,
        "processes": site.processes,
        "layers": list(site.layers),
        "missing": site.missing,
        "stack": [f"{each.file}:{each.line} {each.function}" for each in event.stack],
    }
    if site.per_step is not None:
        evidence["per_step"] = site.per_step
    code = event.code or _UNKNOWN
    fix = catalogue.form(event.form).fix if event.form else None
    return Finding(
        code=code,
        severity=_severity(code, event.kind),
        message=message_of(event),
        location=Location(shown(frame.file), frame.line, None, frame.function) if frame is not None else None,
        evidence=evidence,
        cost_ns=_cost(site),
        cost_reason=None if site.blocked_ns is not None else (_UNMEASURED if gpu else _SHADOWS),
        fix=fix.text if fix is not None else None,
    )


def _cost(site: Site) -> int | None:
    """Time blocked: of a step where steps were announced, else in all."""
    if site.blocked_ns is None:
        return None
    if site.per_step is None or not site.times:
        return site.blocked_ns
    return round(site.blocked_ns * site.per_step / site.times)


def _severity(code: str, kind: Kind) -> Severity:
    if kind is Kind.SUSPECT:
        return Severity.NOTE
    try:
        return rules.get(code).severity
    except UsageError:
        return Severity.WARNING


def message_of(event: SyncEvent) -> str:
    """`aten::nonzero: its size is read back (SILENT, in build)`: the reason up to its first semicolon, because one long
    reason makes every row of a list as long.
    """
    reason = event.reason.partition(";")[0]
    words = [f"{event.op}: {reason}" if event.op else reason]
    marks = [] if event.kind is Kind.SYNC else [event.kind.value]
    marks += [f"in {event.region}"] if event.region else []
    return words[0] + (f" ({', '.join(marks)})" if marks else "")


def shown(file: str) -> str:
    """From the working directory, where the file lies below it."""
    near = os.path.relpath(file)
    return file if near.startswith("..") else near


def sections_of(seen: Folder, sites: Sequence[Site]) -> list[Section]:
    """Processes where there are several, allowed waits, and layers that disagree."""
    made = [_processes(seen)] if len(seen.logs) > 1 else []
    return made + _allowed(sites) + _drift(sites)


def _processes(seen: Folder) -> Section:
    rows: list[dict[str, Cell]] = [
        {
            "rank": log.head.rank,
            "pid": log.head.pid,
            "syncs": log.total.syncs if log.total is not None else 0,
            "steps": log.total.steps if log.total is not None else 0,
            "most": log.total.most if log.total is not None else 0,
            "command": " ".join(log.head.argv)[:80],
        }
        for log in seen.logs
    ]
    columns = [Column("rank", "rank", "count"), Column("pid", "process", "text"), Column("syncs", "waits", "count")]
    columns += [Column("steps", "steps", "count"), Column("most", "most a step", "count"), Column("command", "command")]
    return Section(key="processes", title="Processes", columns=columns, rows=rows)


def _allowed(sites: Sequence[Site]) -> list[Section]:
    rows: list[dict[str, Cell]] = [
        {"times": site.times, "reason": site.event.allowed_by, "place": _place(site)}
        for site in sites
        if site.event.allowed_by
    ]
    columns = [Column("times", "waits", "count"), Column("reason", "allowed because"), Column("place", "where")]
    return [Section(key="allowed", title="Intended waits", columns=columns, rows=rows)] if rows else []


def _drift(sites: Sequence[Site]) -> list[Section]:
    rows: list[dict[str, Cell]] = [
        {
            "calls": count,
            "layer": layer,
            "others": ", ".join(each for each in site.layers if each != layer),
            "what": site.event.op or site.event.reason,
            "place": _place(site),
        }
        for site in sites
        for layer, count in site.missing.items()
    ]
    if not rows:
        return []
    columns = [Column("calls", "calls", "count"), Column("layer", "unseen by"), Column("others", "seen by")]
    columns += [Column("what", "what"), Column("place", "where")]
    note = "a layer that misses a call has drifted from this torch, or the call from what is known of it"
    return [Section(key="drift", title="Layers that disagree", columns=columns, rows=rows, note=note)]


def _place(site: Site) -> str:
    frame = site.frame
    return f"{frame.function}, {shown(frame.file)}:{frame.line}" if frame is not None else site.event.region


def metrics_of(seen: Folder) -> list[Metric]:
    """How much was watched: steps and the most waits of one."""
    totals = [log.total for log in seen.logs if log.total is not None]
    if not any(total.units for total in totals):
        return []
    word = "step" if any(total.steps for total in totals) else "region entry"
    return [
        Metric("units", f"{word}s watched", sum(total.units for total in totals)),
        Metric("most", f"most waits of a {word}", max(total.most for total in totals)),
    ]


def notes_of(seen: Folder) -> list[str]:
    """What a reader should know of how it was watched."""
    notes = list(dict.fromkeys(text for log in seen.logs for text in log.notes))
    if seen.logs:
        notes += seen.problems
    unarmed = seen.started - len(seen.logs)
    if seen.logs and unarmed > 0:
        notes.append(f"besides these, {processes(unarmed)} ran without torch")
    return notes


def processes(count: int) -> str:
    return "1 Python process" if count == 1 else f"{count:,} Python processes"


def facts(seen: Folder, sites: Sequence[Site], *, status: int, folder: Path) -> dict[str, Any]:
    """For machines: everything by site, with whole stacks."""
    totals = [log.total for log in seen.logs if log.total is not None]
    return {
        "status": status,
        "logs": str(folder),
        "processes": [
            {**msgspec.to_builtins(log.head), "ended": log.ended, "total": msgspec.to_builtins(log.total)}
            for log in seen.logs
        ],
        "started": seen.started,
        "syncs": sum(total.syncs for total in totals),
        "allowed": sum(total.allowed for total in totals),
        "violations": [text for total in totals for text in total.violations],
        "sites": [msgspec.to_builtins(site) for site in sites],
        "functions": len({key for log in seen.logs for key in log.functions}),
    }
