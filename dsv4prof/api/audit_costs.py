"""What the syncs of an audit cost in a recorded session."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from dsv4prof.api.analyzing import call_sites
from dsv4prof.api.sources import gather, resolve
from dsv4prof.api.words import plural
from dsv4prof.model.finding import Severity, SourceFinding
from dsv4prof.sync.costs import Cost, costs_of
from dsv4prof.sync.join import join_call_sites
from dsv4prof.sync.trace import host_reads
from dsv4prof.trace.index import TraceIndex


def with_costs(
    findings: Sequence[SourceFinding], session: str, sessions_dir: Path
) -> tuple[list[SourceFinding], list[str]]:
    """The findings with their cost in the session (an id, `latest`, or trace files), and notes on the join.

    What was measured becomes at least a warning: a wait that was seen needs no hot root. Raises as `resolve`.
    """
    source = resolve([session], sessions_dir)
    gathered = gather(source)
    reads = join_call_sites(host_reads(TraceIndex(gathered.trace)), call_sites(source.session))
    costs = costs_of(findings, reads)
    joined = [_priced(finding, cost, source.label) for finding, cost in zip(findings, costs, strict=True)]
    seen = sum(cost is not None for cost in costs)
    return joined, [f"{source.label}: {plural(len(reads), 'site')} of host reads, {seen:,} of the findings among them"]


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
