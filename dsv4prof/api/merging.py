"""Merge: rank files in, one trace out, and the truth about every rank that is cut, repaired or missing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from dsv4prof import __version__
from dsv4prof.analysis.quality import analyze_quality
from dsv4prof.api.sources import MERGED_NAME, Gathered, Source, gather, resolve
from dsv4prof.api.targets import check_same_recording, check_target
from dsv4prof.api.words import plural
from dsv4prof.errors import InputError
from dsv4prof.model.report import Cell, Check, Column, Provenance, Report, Section, Verdict
from dsv4prof.model.trace import ClockFit, MergedRank, MergedTrace
from dsv4prof.recorder.sessions import assemble
from dsv4prof.trace.check import CheckResult, check_file
from dsv4prof.trace.index import TraceIndex
from dsv4prof.trace.write import is_window_marker, write_chrome_json

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


class Merged(msgspec.Struct, frozen=True, kw_only=True):
    """A merged trace, where it was written, and what Perfetto's importer would make of the file."""

    gathered: Gathered
    path: Path
    check: CheckResult

    @property
    def trace(self) -> MergedTrace:
        return self.gathered.trace


def merge(
    inputs: Sequence[str],
    *,
    sessions_dir: Path = Path("traces/local"),
    window: str | None = None,
    output: Path | None = None,
    force: bool = False,
    allow_partial: bool = False,
    strict: bool = False,
) -> Report:
    """Merge what `inputs` name and report on every rank. `window` is one of several that a session recorded.

    Exit status 1 when a rank is missing, cut or repaired (0 with `allow_partial`); with `strict` InputError instead and
    nothing written. UsageError or OutputError when the output may not be written (see `targets`).
    """
    source = resolve(inputs, sessions_dir, window=window)
    target = output or (source.folder / source.merged_name if source.folder else Path(MERGED_NAME))
    merged = merge_source(source, target, force=force, strict=strict)
    return _report(merged, source, list(inputs), allow_partial)


def merge_source(source: Source, target: Path, *, force: bool = False, strict: bool = False) -> Merged:
    """Read, merge, write and check; a session's manifest learns of its merged file."""
    check_target(target, source.files, force=force)
    gathered = gather(source)
    check_same_recording(target, gathered.trace, force=force)
    if strict and not gathered.whole:
        first = next((f"rank {rank}: {why}" for rank, why in gathered.faults.items()), None)
        raise InputError(
            f"not merged: {first or gathered.unreadable[0]}",
            hint="without --strict the rest is merged and the exit status is 1",
        )
    write_chrome_json(gathered.trace, target)
    plain = source.folder is not None and target == source.folder / MERGED_NAME
    if plain and source.folder is not None and source.session is not None:
        assemble(source.folder, merged=target.name)
    return Merged(gathered=gathered, path=target, check=check_file(target))


def rank_facts(trace: MergedTrace) -> list[dict[str, Any]]:
    """For each rank what machines want to know of it: counts of what a merged file holds, lanes, notes, clock."""
    clocks = {clock.rank: clock for clock in trace.clocks}
    return [_facts(rank, clocks[rank.trace.coordinates.rank]) for rank in trace.ranks]


def _facts(rank: MergedRank, clock: ClockFit) -> dict[str, Any]:
    trace = rank.trace
    instants = sum(not is_window_marker(point) for point in trace.instants)
    return {
        "rank": trace.coordinates.rank,
        "host": trace.coordinates.host,
        "source": trace.source,
        "events": len(trace.slices) + instants + len(trace.counters) + len(trace.flows) + len(trace.asyncs),
        "slices": len(trace.slices),
        "lanes": rank.lane_count,
        "flows": len(trace.flows),
        "complete": trace.complete,
        "salvage": trace.notes,
        "dropped": msgspec.to_builtins(trace.dropped),
        "clock": msgspec.to_builtins(clock),
    }


def merge_check(merged: Merged, *, allow_partial: bool = False) -> Check:
    """The one-line result: what was written and what a viewer would lose of it.

    `ok` is None where a rank is missing, cut or repaired and that was allowed.
    """
    check, clocks = merged.check, merged.trace.clocks
    residuals = [clock.residual_ns for clock in clocks if clock.matches and clock.residual_ns is not None]
    clock = f"clock residual {max(residuals) / 1e3:.1f} us" if residuals else "clocks by base time"
    partial_ok = None if allow_partial else False
    return Check(
        key="merged",
        ok=False if not check.ok else True if merged.gathered.whole else partial_ok,
        message=f"{merged.path}: {plural(check.slices_in, 'slice')}, {plural(len(clocks), 'rank')}, {clock}, "
        f"{plural(check.slices_in - check.slices_out, 'dropped slice')}, "
        f"{plural(check.duplicate_flows, 'duplicate flow')}",
    )


def _report(merged: Merged, source: Source, inputs: list[str], allow_partial: bool) -> Report:
    facts = rank_facts(merged.trace)
    rows: list[dict[str, Cell]] = [
        {**{key: fact[key] for key in ("rank", "host", "events", "lanes", "flows")}}
        | {key: fact["clock"][key] for key in ("offset_ns", "drift_ppm", "residual_ns")}
        for fact in facts
    ]
    code = 0 if merged.gathered.whole or allow_partial else 1
    state = "whole" if merged.gathered.whole else "partial"
    session = source.session.id if source.session else None
    return Report(
        kind="merge",
        provenance=Provenance(command="merge", inputs=inputs, session=session, versions={"dsv4prof": __version__}),
        checks=[merge_check(merged, allow_partial=allow_partial)],
        sections=[Section(key="ranks", title="Ranks", columns=_COLUMNS, rows=rows)],
        findings=[*merged.gathered.findings(source), *analyze_quality(TraceIndex(merged.trace)).findings],
        notes=source.notes,
        verdict=Verdict(exit_code=code, summary=f"{state}: {plural(len(facts), 'rank')} merged"),
        next_command=f"dsv4prof analyze {source.again if session and source.folder else merged.path}",
        data={
            "output": str(merged.path),
            "ranks": facts,
            "missing_ranks": merged.trace.missing_ranks,
            "unreadable": merged.gathered.unreadable,
            "check": msgspec.to_builtins(merged.check),
        },
    )
