"""What the syncs of an audit cost in a recorded session."""

from __future__ import annotations

from pathlib import Path

import msgspec

from dsv4prof.api.analyzing import call_sites
from dsv4prof.api.audit_seen import Ranges, Seen, seen_findings
from dsv4prof.api.audit_state import Audited
from dsv4prof.api.sources import gather, resolve
from dsv4prof.api.words import plural
from dsv4prof.model.finding import Finding, Severity, SourceFinding
from dsv4prof.sync.costs import Cost, costs_of
from dsv4prof.sync.join import join_call_sites
from dsv4prof.sync.trace import host_reads
from dsv4prof.trace.index import TraceIndex


def add_costs(audited: Audited, session: str, sessions_dir: Path, touched: Ranges | None) -> None:
    """Gives every finding its cost in the session (an id, `latest`, or trace files); what waits there and is no finding
    of the source becomes one.

    What was measured becomes at least a warning: a wait that was seen needs no hot root. Raises as `resolve`.
    """
    source = resolve([session], sessions_dir)
    gathered = gather(source)
    reads = join_call_sites(host_reads(TraceIndex(gathered.trace)), call_sites(source.session))
    # What a remark allows still costs, and shares its sites with the rest; so does what a comparison knows.
    allowed = [finding for finding, _ in audited.suppressed]
    everything = [*audited.findings, *allowed, *audited.known]
    costs = costs_of(everything, reads)
    seen = sum(cost is not None for cost in costs)
    note = f"{source.label}: {plural(len(reads), 'site')} of host reads, {seen:,} of the findings among them"
    joined = [_priced(finding, cost, source.label) for finding, cost in zip(everything, costs, strict=True)]
    number, with_allowed = len(audited.findings), len(audited.findings) + len(allowed)
    audited.findings = joined[:number]
    audited.suppressed = [
        (finding, by) for finding, (_, by) in zip(joined[number:with_allowed], audited.suppressed, strict=True)
    ]
    audited.known = joined[with_allowed:]
    alone = [read for read in reads if not any(costs_of(everything, [read]))]
    more = seen_findings(audited, [each for read in alone if (each := _seen(read, source.label))], touched)
    audited.findings += [
        _priced(finding, cost, source.label) for finding, cost in zip(more, costs_of(more, alone), strict=True)
    ]
    audited.notes.append(note + (f"; {len(more):,} more that the source does not tell" if more else ""))


def _seen(read: Finding, label: str) -> Seen | None:
    """A site of the trace as a place in source: the calling line where it is known, else where its function begins."""
    place = read.location
    line = (place.line or read.evidence.get("def_line")) if place is not None else None
    if place is None or not line:
        return None
    where = "" if place.line else " somewhere in this function"
    reason = f"{label} shows it{where}, the source does not tell: {' > '.join(read.evidence['ops']) or read.message}"
    return Seen(place.file, line, place.function or "", read.code, "", reason)


def _priced(finding: SourceFinding, cost: Cost | None, label: str) -> SourceFinding:
    if cost is None:
        return finding
    shared = f", shared with {plural(cost.shared, 'other statement')} of the function" if cost.shared else ""
    return msgspec.structs.replace(
        finding,
        severity=max(finding.severity, Severity.WARNING, key=lambda severity: severity.rank),
        cost_ns=cost.cost_ns,
        cost_reason=f"{cost.reason}, in {label}{shared}",
        evidence={
            **finding.evidence,
            "session": label,
            "reads": cost.reads,
            "per_step": cost.per_step,
            "gpu_idle_per_step_ns" if cost.per_step else "gpu_idle_ns": cost.idle_ns,
            "shared_with": cost.shared,
        },
    )
