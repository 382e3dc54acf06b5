"""Merge: rank files in, one trace out, and the truth about every rank that is cut, repaired or missing."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from dsv4prof import __version__
from dsv4prof.analysis.quality import clock_findings, file_findings, missing_findings
from dsv4prof.api.formats import JSON, TAR, write
from dsv4prof.api.sources import MERGED_NAME, Source, rank_sources, resolve, source_findings
from dsv4prof.api.targets import check_same_recording, check_target
from dsv4prof.api.waiting import Patience
from dsv4prof.api.words import plural
from dsv4prof.errors import InputError, UsageError
from dsv4prof.model.finding import Finding
from dsv4prof.model.report import Cell, Check, Column, Provenance, Report, Section, Verdict
from dsv4prof.model.session import RankCoordinates
from dsv4prof.model.trace import ClockFit, Dropped, MergedTrace
from dsv4prof.query.checking import ImportCheck, check_with_importer
from dsv4prof.query.importer import importer_available
from dsv4prof.recorder.sessions import assemble
from dsv4prof.trace.check import CheckResult, check_file
from dsv4prof.trace.clocks import Align
from dsv4prof.trace.identity import Naming
from dsv4prof.trace.losses import losses
from dsv4prof.trace.markers import is_window_marker
from dsv4prof.trace.merging import Merge, Options
from dsv4prof.trace.narrow import EVERYTHING, Narrowing
from dsv4prof.trace.planning import MergePlan

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
# Below this many bytes of input, compressed as a rule, a second process costs more than it saves.
_WORTH_A_PROCESS = 4 << 20
_MAX_JOBS = 8


class Merged(msgspec.Struct, frozen=True, kw_only=True):
    """A merged trace that was written. `faults` says by rank what is wrong, `unreadable` which files are no use at all.

    `passed_over` are files of a folder that are something else. `check` is what Perfetto's importer would make of the
    file, where that was asked for, and `imported` what it made of it, where it is there.
    """

    plan: MergePlan
    faults: dict[int, str]
    unreadable: list[str]
    passed_over: list[str] = []
    path: Path
    check: CheckResult | None = None
    imported: ImportCheck | None = None

    @property
    def broken(self) -> bool:
        """Whether reading it back showed a loss."""
        return (self.check is not None and not self.check.ok) or (
            self.imported is not None and not (self.imported.ok and self.imported.counts.slices == self.shown)
        )

    @property
    def slices(self) -> int:
        return sum(rank.survey.counts["slices"] for rank in self.plan.ranks)

    @property
    def shown(self) -> int:
        """What an importer should count: to it an instant is a slice without a duration."""
        return self.slices + sum(rank.survey.counts["instants"] for rank in self.plan.ranks)

    @property
    def whole(self) -> bool:
        return not self.faults and not self.unreadable

    def findings(self, source: Source) -> list[Finding]:
        """What the trace itself cannot tell: files that were left out, ranks that ended early."""
        return source_findings(source, self.unreadable)


class MergeRequest(msgspec.Struct, frozen=True, kw_only=True):
    """How to merge. `check` reads the result back, `import_it` as Perfetto does where that is there.

    `patience` says whether to wait for files that are still written.
    """

    options: Options = Options()
    naming: Naming = Naming()
    force: bool = False
    strict: bool = False
    check: bool = False
    import_it: bool = False
    patience: Patience | None = None


def merge(
    inputs: Sequence[str],
    *,
    sessions_dir: Path = Path("traces/local"),
    window: str | None = None,
    output: Path | None = None,
    force: bool = False,
    allow_partial: bool = False,
    strict: bool = False,
    check: bool = False,
    align: Align | str = Align.AUTO,
    narrowing: Narrowing = EVERYTHING,
    arrows: bool = False,
    rank_regex: str | None = None,
    jobs: int | None = 1,
    patience: Patience | None = None,
) -> Report:
    """Merge what `inputs` name and report on every rank. `window` is one of several that a session recorded.

    `align` says how clocks are found, `narrowing` what to keep, `arrows` whether to tie the ranks of a collective,
    `rank_regex` where in a file's name the rank is, `jobs` how many processes may work (None: by the size of the input;
    they are spawned, so that a script needs its main guard).

    Exit status 1 when a rank is missing, cut or repaired (0 with `allow_partial`); with `strict` InputError instead and
    nothing written. UsageError or OutputError when the output may not be written (see `targets`).
    """

    def find() -> Source:
        return resolve(inputs, sessions_dir, window=window)

    source = _found(find, patience)
    target = output or (source.folder / source.merged_name if source.folder else Path(MERGED_NAME))
    request = MergeRequest(
        options=Options(align=align_mode(align), narrowing=narrowing, arrows=arrows, jobs=jobs_for(source, jobs)),
        naming=Naming.of(rank_regex),
        force=force,
        strict=strict,
        check=check,
        import_it=check,
        patience=patience,
    )
    merged = merge_source(source, target, request, find_again=find)
    return _report(merged, source, list(inputs), allow_partial)


def align_mode(name: Align | str) -> Align:
    """Raises UsageError for a name that is no mode."""
    try:
        return Align(name)
    except ValueError:
        known = ", ".join(mode.value for mode in Align)
        raise UsageError(f"there is no way {str(name)!r} to align clocks", hint=f"one of: {known}") from None


def _found(find: Callable[[], Source], patience: Patience | None) -> Source:
    """What is named, as soon as it is there."""
    while True:
        try:
            return find()
        except InputError:
            if patience is None or not patience.again([]):
                raise


def merge_source(
    source: Source,
    target: Path,
    request: MergeRequest | None = None,
    find_again: Callable[[], Source] | None = None,
) -> Merged:
    """Look, plan, write and, where asked, check; a session's manifest learns of its merged file."""
    request = request or MergeRequest()
    check_target(target, source.files, force=request.force)
    with Merge(request.options, scratch=target.parent) as merging:
        while True:
            plan, refused = merging.look(rank_sources(source, request.naming))
            plan = msgspec.structs.replace(
                plan, missing_ranks=[rank for rank in plan.missing_ranks if rank not in source.skipped]
            )
            faults = {**_faults(plan), **source.lost}
            passed_over = [each.message for each in refused if source.is_other(each.path, each.other)]
            unreadable = [each.message for each in refused if not source.is_other(each.path, each.other)]
            if not (faults or unreadable) or request.patience is None or not request.patience.again(source.files):
                break
            source = find_again() if find_again is not None else source
        check_same_recording(target, plan, force=request.force)
        if request.strict and (faults or unreadable):
            first = next((f"rank {rank}: {why}" for rank, why in faults.items()), None)
            raise InputError(
                f"not merged: {first or unreadable[0]}",
                hint="without --strict the rest is merged and the exit status is 1",
            )
        write(merging, plan, target)
    plain = source.folder is not None and target == source.folder / MERGED_NAME
    if plain and source.folder is not None and source.session is not None:
        assemble(source.folder, merged=target.name)
    check = check_file(target) if request.check and target.name.endswith(JSON) else None
    wanted = request.import_it and not target.name.endswith(TAR) and importer_available()
    imported = check_with_importer(target) if wanted else None
    return Merged(
        plan=plan,
        faults=faults,
        unreadable=unreadable,
        passed_over=passed_over,
        path=target,
        check=check,
        imported=imported,
    )


def jobs_for(source: Source, wanted: int | None) -> int:
    """How many processes: as many as wanted; else one a rank, as many as there are cores, for files of some size.

    Raises UsageError for none. Files that live in this process's memory can be read only here.
    """
    if wanted is not None and wanted < 1:
        raise UsageError(f"{wanted} processes cannot merge", hint="give 1 or more: --jobs 2")
    if any(str(path).startswith("memory:") for path in source.files):
        return 1
    if wanted is not None:
        return min(wanted, len(source.files))
    sizes = [path.stat().st_size for path in source.files if isinstance(path, Path) and path.exists()]
    if sum(sizes) < _WORTH_A_PROCESS:
        return 1
    return max(1, min(len(source.files), len(os.sched_getaffinity(0)), _MAX_JOBS))


def _faults(plan: MergePlan) -> dict[int, str]:
    faults = dict.fromkeys(plan.missing_ranks, "missing: no file for it")
    for rank in plan.ranks:
        lost = losses(rank)
        if lost:
            faults[rank.rank] = "; ".join(lost)
    return faults


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
        "flows": counts["flows"],
        "complete": complete,
        "salvage": notes,
        "dropped": msgspec.to_builtins(dropped),
        "clock": msgspec.to_builtins(clock),
    }


def merge_check(merged: Merged, *, allow_partial: bool = False) -> Check:
    """The one-line result: what was written and, where it was read back, what a viewer would lose of it.

    `ok` is None where a rank is missing, cut or repaired and that was allowed.
    """
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


def _next(merged: Merged, source: Source) -> str:
    if not merged.path.name.endswith(JSON):
        return f"dsv4prof view {merged.path}"
    return f"dsv4prof analyze {source.again if source.session and source.folder else merged.path}"


def _report(merged: Merged, source: Source, inputs: list[str], allow_partial: bool) -> Report:
    facts = plan_facts(merged.plan)
    rows: list[dict[str, Cell]] = [
        {**{key: fact[key] for key in ("rank", "host", "events", "lanes", "flows")}}
        | {key: fact["clock"][key] for key in ("offset_ns", "drift_ppm", "residual_ns")}
        for fact in facts
    ]
    code = 0 if (merged.whole or allow_partial) and not merged.broken else 1
    state = "whole" if merged.whole else "partial"
    session = source.session.id if source.session else None
    stragglers = merged.plan.stragglers
    return Report(
        kind="merge",
        provenance=Provenance(command="merge", inputs=inputs, session=session, versions={"dsv4prof": __version__}),
        checks=[merge_check(merged, allow_partial=allow_partial)],
        sections=[Section(key="ranks", title="Ranks", columns=_COLUMNS, rows=rows)],
        findings=[*merged.findings(source), *_rank_findings(merged.plan)],
        notes=[
            *source.notes,
            *(f"passed over: {why}" for why in merged.passed_over),
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
