"""What a merge reports: each rank's facts, and the one-line result."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

from dsv4prof import __version__
from dsv4prof.analysis.quality import clock_findings, file_findings, missing_findings
from dsv4prof.api.formats import JSON, TAR
from dsv4prof.api.sources import Source
from dsv4prof.api.words import plural
from dsv4prof.model.finding import Finding
from dsv4prof.model.report import Cell, Check, Column, Provenance, Report, Section, Verdict
from dsv4prof.model.session import RankCoordinates
from dsv4prof.model.trace import ClockFit, Dropped, MergedTrace
from dsv4prof.trace.markers import is_window_marker
from dsv4prof.trace.planning import MergePlan

if TYPE_CHECKING:
    from dsv4prof.api.merging import Merged

_COLUMNS = [
    Column("rank", "rank", "count"),
    Column("host", "host"),
    Column("events", "events", "count"),
    Column("offset_ns", "offset", "ns"),
    Column("drift_ppm", "drift", "ppm"),
    Column("residual_ns", "residual", "ns"),
    Column("lanes", "extra lanes", "count"),
    Column("flows", "flows", "count"),
]


def plan_facts(plan: MergePlan) -> list[dict[str, Any]]:
    """For each rank what machines want to know of it: counts of what a merged file holds, lanes, notes, clock."""
    found = []
    for rank in plan.ranks:
        survey = rank.survey
        found.append(
            _facts(
                rank.coordinates,
                survey.facts.source,
                survey.counts,
                rank.complete,
                rank.notes,
                rank.dropped,
                rank.clock,
            )
        )
    return found


def rank_facts(trace: MergedTrace) -> list[dict[str, Any]]:
    """The same for a trace in memory."""
    clocks = {clock.rank: clock for clock in trace.clocks}
    found = []
    for rank in trace.ranks:
        own = rank.trace
        counts = {
            "slices": len(own.slices),
            "instants": sum(not is_window_marker(point) for point in own.instants),
            "counters": len(own.counters),
            "flows": len(own.flows),
            "arrows": sum(point.ph != "s" for point in own.flows),
            "asyncs": len(own.asyncs),
            "lanes": rank.lane_count,
        }
        clock = clocks[own.coordinates.rank]
        found.append(_facts(own.coordinates, own.source, counts, own.complete, own.notes, own.dropped, clock))
    return found


def _facts(
    coordinates: RankCoordinates,
    source: str,
    counts: dict[str, int],
    complete: bool,
    notes: list[str],
    dropped: list[Dropped],
    clock: ClockFit,
) -> dict[str, Any]:
    return {
        "rank": coordinates.rank,
        "host": coordinates.host,
        "source": source,
        "events": sum(counts[kind] for kind in ("slices", "instants", "counters", "flows", "asyncs")),
        "slices": counts["slices"],
        "instants": counts["instants"],
        "lanes": counts["lanes"],
        "flows": counts["arrows"],
        "complete": complete,
        "salvage": notes,
        "dropped": msgspec.to_builtins(dropped),
        "clock": msgspec.to_builtins(clock),
    }


def merge_check(merged: Merged, *, allow_partial: bool = False) -> Check:
    """The one-line result: what was written and, where it was read back, what a viewer would lose of it.

    `ok` is None where a rank is missing, cut or repaired and that was allowed.
    """
    if merged.path.name.endswith(TAR):
        packed = plural(len(merged.plan.ranks), "rank file")
        told = f"{merged.path}: {packed} as they are, for Perfetto 58 or newer (experimental, not checked)"
        return Check(key="merged", ok=None, message=told)
    check, clocks = merged.check, merged.plan.clocks
    residuals = [clock.residual_ns for clock in clocks if clock.matches and clock.residual_ns is not None]
    clock = f"clock residual {max(residuals) / 1e3:.1f} us" if residuals else "clocks by base time"
    partial_ok = None if allow_partial else False
    words = [f"{merged.path}: {plural(merged.slices, 'slice')}", plural(len(clocks), "rank"), clock]
    if merged.imported is not None:
        words.append(plural(merged.shown - merged.imported.counts.slices, "dropped slice"))
        words.append(f"{plural(sum(merged.imported.errors.values()), 'import error')} (Perfetto)")
    elif check is not None:
        words.append(plural(check.slices_in - check.slices_out, "dropped slice"))
        words.append(plural(check.duplicate_flows, "duplicate flow"))
    return Check(
        key="merged", ok=False if merged.broken else True if merged.whole else partial_ok, message=", ".join(words)
    )


def _rank_findings(plan: MergePlan) -> list[Finding]:
    """What the ranks' files say of themselves; what their events say is told by an analysis."""
    told = [finding for rank in plan.ranks for finding in file_findings(rank.rank, rank)]
    windows = [(r.survey.first_ns, r.survey.last_ns, r.rank) for r in plan.ranks if r.survey.first_ns is not None]
    return [*told, *clock_findings(windows), *missing_findings(plan.missing_ranks, len(plan.ranks))]


def _remarks(plan: MergePlan) -> list[str]:
    """What is worth saying of ranks and no fault; a sentence that many share is said once."""
    told: dict[str, list[str]] = {}
    for rank in plan.ranks:
        for remark in rank.remarks:
            shared = re.sub(r"numbered \d+ by its place", "numbered by their places", remark)
            told.setdefault(shared, []).append(str(rank.rank))
    return [f"rank {', '.join(ranks[:8])}{', ...' if len(ranks) > 8 else ''}: {why}" for why, ranks in told.items()]


def _clock_notes(plan: MergePlan) -> list[str]:
    """Why ranks are where their files say they are."""
    told: dict[str, list[str]] = {}
    for fit in plan.clocks:
        kept = fit.reason.startswith(("base times", "times as")) and "as any fit" not in fit.reason
        if kept and len(plan.clocks) > 1:
            told.setdefault(fit.reason, []).append(str(fit.rank))
    return [f"clock of {'rank' if len(ranks) == 1 else 'ranks'} {', '.join(ranks[:8])}"
            + (", ..." if len(ranks) > 8 else "") + f": {reason}" for reason, ranks in told.items()]  # fmt: skip


def _next(merged: Merged, source: Source) -> str | None:
    if merged.path.name.endswith(TAR):
        return None
    if not merged.path.name.endswith(JSON):
        return f"dsv4prof view {merged.path}"
    return f"dsv4prof analyze {source.again if source.session and source.folder else merged.path}"


def merge_report(merged: Merged, source: Source, inputs: list[str], allow_partial: bool) -> Report:
    facts = plan_facts(merged.plan)
    rows: list[dict[str, Cell]] = [
        {**{key: fact[key] for key in ("rank", "host", "events", "lanes", "flows")}}
        | {key: fact["clock"][key] for key in ("offset_ns", "drift_ppm", "residual_ns")}
        for fact in facts
    ]
    code = 0 if (merged.whole or allow_partial) and not merged.broken else 1
    state = "whole" if merged.whole else "partial"
    session = source.session.id if source.session else None
    stragglers = merged.plan.stragglers if merged.plan.ranks else []
    return Report(
        kind="merge",
        provenance=Provenance(command="merge", inputs=inputs, session=session, versions={"dsv4prof": __version__}),
        checks=[merge_check(merged, allow_partial=allow_partial)],
        sections=[Section(key="ranks", title="Ranks", columns=_COLUMNS, rows=rows)],
        findings=[*merged.findings(source), *_rank_findings(merged.plan)],
        notes=[
            *source.notes,
            *(f"passed over: {why}" for why in merged.passed_over),
            *_remarks(merged.plan),
            *_clock_notes(merged.plan),
            *(f"straggler: {each.evidence}" for each in stragglers),
        ],
        verdict=Verdict(exit_code=code, summary=f"{state}: {plural(len(facts), 'rank')} merged"),
        next_command=_next(merged, source),
        data={
            "output": str(merged.path),
            "ranks": facts,
            "stragglers": msgspec.to_builtins(stragglers),
            "missing_ranks": merged.plan.missing_ranks,
            "unreadable": merged.unreadable,
            "check": None if merged.check is None else msgspec.to_builtins(merged.check),
            "imported": None if merged.imported is None else msgspec.to_builtins(merged.imported),
        },
    )
