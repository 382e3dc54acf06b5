"""What made the steps slow: every analysis over one merged trace, and the facts that machines ask for by name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from dsv4prof import __version__
from dsv4prof.analysis.graphs import analyze_graphs
from dsv4prof.analysis.mtp import KEY as ACCEPT_LENGTH
from dsv4prof.analysis.mtp import analyze_mtp
from dsv4prof.analysis.phases import analyze_phases
from dsv4prof.analysis.quality import analyze_quality
from dsv4prof.api.merge_report import rank_facts
from dsv4prof.api.sources import Gathered, Source, gather, resolve
from dsv4prof.api.verdicts import verdict
from dsv4prof.api.words import plural
from dsv4prof.model.finding import Finding
from dsv4prof.model.report import Check, Metric, Provenance, Report, Section
from dsv4prof.model.session import CallSite, Session
from dsv4prof.model.trace import MergedTrace
from dsv4prof.sync.allowances import KNOWN, Allowance, parse_allowances
from dsv4prof.sync.join import join_call_sites
from dsv4prof.sync.trace import host_reads
from dsv4prof.trace.index import TraceIndex


class Insight(msgspec.Struct, frozen=True, kw_only=True):
    """All that the analyses say of a trace, in report parts, and the same as named facts."""

    sections: list[Section]
    metrics: list[Metric]
    findings: list[Finding]
    notes: list[str]
    facts: dict[str, Any]


def analyze(
    inputs: Sequence[str],
    *,
    sessions_dir: Path = Path("traces/local"),
    window: str | None = None,
    allow: str | None = None,
    fail_on: str = "never",
) -> Report:
    """Findings and tables of a session (or one `window` of it), a merged trace or rank files; status by `fail_on`.

    `allow` declares intended syncs, as `sync.allowances` reads them. Raises UsageError and what `resolve` raises.
    """
    allowances = parse_allowances(allow)
    source = resolve(inputs, sessions_dir, window=window)
    gathered = gather(source)
    insight = explain(gathered.trace, source.session, allowances)
    findings = [*insight.findings, *gathered.findings(source)]
    session = source.session.id if source.session else None
    return Report(
        kind="analyze",
        provenance=Provenance(
            command="analyze", inputs=list(inputs), session=session, versions={"dsv4prof": __version__}
        ),
        checks=[source_check(gathered, source)],
        sections=insight.sections,
        metrics=insight.metrics,
        findings=findings,
        notes=[*source.notes, *insight.notes],
        verdict=verdict(findings, fail_on),
        next_command=f"dsv4prof sessions show {session}" if session else None,
        data={**insight.facts, "ranks": rank_facts(gathered.trace)},
    )


def source_check(gathered: Gathered, source: Source) -> Check:
    """What was read, since `latest` or a prefix does not say."""
    ranks = plural(len(gathered.trace.ranks), "rank")
    files = plural(len(source.files), "file")
    return Check(key="source", ok=gathered.whole or None, message=f"{source.label}: {ranks} in {files}")


def explain(trace: MergedTrace, session: Session | None, allowances: Sequence[Allowance] = KNOWN) -> Insight:
    """Run every analysis once. The session, where there is one, adds the gate's reasons and the calls' lines."""
    index = TraceIndex(trace)
    gates = _gates(session)
    parts = [
        analyze_phases(index),
        analyze_mtp(index),
        analyze_graphs(
            index,
            reasons={phase: gate["reason"] for phase, gate in gates.items()},
            asked=any(record.facts.get("graphs_asked") is True for record in (session.ranks if session else [])),
        ),
        analyze_quality(index),
    ]
    reads = join_call_sites(host_reads(index, allowances), call_sites(session))
    metrics = [metric for part in parts for metric in part.metrics]
    return Insight(
        sections=[section for part in parts for section in part.sections],
        metrics=metrics,
        findings=[*reads, *(finding for part in parts for finding in part.findings)],
        notes=[note for part in parts for note in part.notes],
        facts={
            "accept_length": next((metric.value for metric in metrics if metric.key == ACCEPT_LENGTH), None),
            "step_ns": {m.key.partition(".")[2]: m.value for m in metrics if m.key.startswith("step.")},
            "phases": _phase_facts([section for part in parts for section in part.sections]),
            "graphs": gates,
            "host_reads": [_read_facts(finding) for finding in reads],
        },
    )


def call_sites(session: Session | None) -> list[CallSite]:
    """The calling lines that a session noted, by its lowest rank that has any."""
    if session is None:
        return []
    return next((record.call_sites for record in session.ranks if record.call_sites), [])


def _gates(session: Session | None) -> dict[str, dict[str, Any]]:
    """What the engine's graph gate decided, by phase: from the lowest rank that says so.

    `facts` belongs to whoever wrote the record, so its form is looked at and not trusted.
    """
    for record in session.ranks if session is not None else []:
        gates = record.facts.get("gates")
        if isinstance(gates, dict) and gates:
            return {phase: gate for phase, gate in gates.items() if isinstance(gate, dict) and "reason" in gate}
    return {}


def _phase_facts(sections: Sequence[Section]) -> dict[str, dict[str, Any]]:
    """Each phase's mean over the steps of the kind that it belongs to; a phase of several kinds keeps the first."""
    facts: dict[str, dict[str, Any]] = {}
    for section in sections:
        if not section.key.startswith("phases."):
            continue
        for row in section.rows:
            if row["phase"] != "step":
                entry = {"ns": row["mean_ns"], "p99_ns": row["p99_ns"], "steps": row["steps"]}
                facts.setdefault(str(row["phase"]), {**entry, "kind": section.key.partition(".")[2]})
    return facts


def _read_facts(finding: Finding) -> dict[str, Any]:
    """A host read as machines want it: where, how often, and what it cost or why that is unknown."""
    place, evidence = finding.location, finding.evidence
    return {
        "code": finding.code,
        "message": finding.message,
        "file": place.file if place else None,
        "line": place.line if place else None,
        "function": place.function if place else None,
        "region": evidence.get("region"),
        "operators": evidence.get("ops", []),
        "reads": evidence.get("reads"),
        "calls": evidence.get("calls"),
        "reads_per_call": evidence.get("per_call"),
        "reads_per_step": evidence.get("per_step"),
        "outside_steps": evidence.get("outside_steps"),
        "cost_ns": finding.cost_ns,
        "cost_reason": finding.cost_reason,
        "fix": finding.fix,
    }
