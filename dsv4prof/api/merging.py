"""Merge: rank files in, one trace out, and the truth about every rank that is cut, repaired or missing."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import msgspec

from dsv4prof.api.formats import JSON, TAR, write
from dsv4prof.api.merge_report import merge_report
from dsv4prof.api.sources import MERGED_NAME, Source, lost_before, rank_sources, resolve, source_findings
from dsv4prof.api.targets import check_same_recording, check_target
from dsv4prof.api.waiting import Patience
from dsv4prof.api.words import plural
from dsv4prof.errors import InputError, UsageError
from dsv4prof.model.finding import Finding
from dsv4prof.model.report import Report
from dsv4prof.query.checking import ImportCheck, check_with_importer
from dsv4prof.query.importer import importer_available
from dsv4prof.recorder.sessions import assemble
from dsv4prof.trace.check import CheckResult, check_file
from dsv4prof.trace.clocks import Align
from dsv4prof.trace.identity import Naming
from dsv4prof.trace.losses import losses
from dsv4prof.trace.merging import Merge, Options
from dsv4prof.trace.narrow import EVERYTHING, Narrowing
from dsv4prof.trace.planning import MergePlan

# Bytes of input, compressed as a rule: a second and more.
_LONG = 4 << 20
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
        return self.slices + sum(
            rank.survey.counts["instants"] + rank.survey.counts["async_slices"] for rank in self.plan.ranks
        )

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
    progress: Callable[[str], None] = lambda _: None,
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

    source = _found(find, patience, progress)
    target = output or _default_target(source, narrowing)
    _check_naming(source, rank_regex)
    request = MergeRequest(
        options=Options(align=align_mode(align), narrowing=narrowing, arrows=arrows, jobs=jobs_for(source, jobs)),
        naming=Naming.of(rank_regex),
        force=force,
        strict=strict,
        check=check,
        import_it=check,
        patience=patience,
    )
    merged = merge_source(source, target, request, find_again=find, progress=progress)
    return merge_report(merged, source, list(inputs), allow_partial)


def _check_not_empty(plan: MergePlan, narrowing: Narrowing) -> None:
    """A selection that selects nothing is a mistake."""
    if narrowing == EVERYTHING or any(rank.survey.counts["slices"] for rank in plan.ranks):
        return
    length = (plan.last_ns - plan.origin_ns) / 1e6
    steps = [step.index for rank in plan.ranks for step in rank.survey.steps]
    known = f"; steps {min(steps)} to {max(steps)} are named in it" if steps else ""
    raise InputError("nothing of the trace is selected", hint=f"it is {length:,.3f} ms long{known}")


def align_mode(name: Align | str) -> Align:
    """Raises UsageError for a name that is no mode."""
    try:
        return Align(name)
    except ValueError:
        known = ", ".join(mode.value for mode in Align)
        raise UsageError(f"there is no way {str(name)!r} to align clocks", hint=f"one of: {known}") from None


def _default_target(source: Source, narrowing: Narrowing) -> Path:
    """In the session or folder that was named, else here. A part never takes the place of the whole."""
    name = source.merged_name if narrowing == EVERYTHING else source.merged_name.replace(".", ".part.", 1)
    return source.folder / name if source.folder else Path(name)


def _check_naming(source: Source, regex: str | None) -> None:
    naming = Naming.of(regex)
    if regex is not None and all(naming.rank(Path(str(path)).name) is None for path in source.files):
        first = Path(str(source.files[0])).name
        raise UsageError(f"{regex!r} finds no rank in any name", hint=f"the first file is called {first}")


def _found(find: Callable[[], Source], patience: Patience | None, progress: Callable[[str], None]) -> Source:
    """What is named, as soon as it is there."""
    while True:
        try:
            return find()
        except InputError as error:
            if patience is None or not patience.again([], partial(progress, f"waiting: {error.message}")):
                raise


def merge_source(
    source: Source,
    target: Path,
    request: MergeRequest | None = None,
    find_again: Callable[[], Source] | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Merged:
    """Look, plan, write and, where asked, check; a session's manifest learns of its merged file."""
    request = request or MergeRequest()
    check_target(target, source.files, force=request.force)
    with Merge(request.options, scratch=target.parent) as merging:
        while True:
            if takes_long(source):
                progress(f"reading {plural(len(source.files), 'file')}")
            plan, refused = merging.look(rank_sources(source, request.naming))
            plan = msgspec.structs.replace(
                plan, missing_ranks=[rank for rank in plan.missing_ranks if rank not in source.skipped]
            )
            # Of some ranks alone nothing is missing.
            before = lost_before(source) if request.options.narrowing.ranks is None else None
            plan = msgspec.structs.replace(
                plan, missing_ranks=sorted({*plan.missing_ranks, *(before.missing_ranks if before else [])})
            )
            faults = {**_faults(plan), **source.lost}
            passed_over = [each.message for each in refused if source.is_other(each.path, each.other)]
            unreadable = [each.message for each in refused if not source.is_other(each.path, each.other)]
            unreadable += before.unreadable if before else []
            plan = msgspec.structs.replace(plan, unreadable=unreadable)
            wrong = [*unreadable, *(f"rank {rank}: {why}" for rank, why in faults.items())]
            if not wrong or request.patience is None:
                break
            if not request.patience.again(source.files, partial(progress, f"waiting: {wrong[0]}")):
                break
            source = find_again() if find_again is not None else source
        check_same_recording(target, plan, force=request.force)
        if request.strict and wrong:
            more = f" (and {plural(len(wrong) - 1, 'more fault')})" if len(wrong) > 1 else ""
            raise InputError(
                f"not merged: {wrong[0]}{more}", hint="without --strict the rest is merged and the exit status is 1"
            )
        _check_not_empty(plan, request.options.narrowing)
        if takes_long(source):
            progress(f"writing {target}")
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


def takes_long(source: Source) -> bool:
    """Whether there is enough to read that a person wonders, and that a second process is worth its start."""
    sizes = [path.stat().st_size for path in source.files if isinstance(path, Path) and path.exists()]
    return sum(sizes) >= _LONG


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
    if not takes_long(source):
        return 1
    return max(1, min(len(source.files), len(os.sched_getaffinity(0)), _MAX_JOBS))


def _faults(plan: MergePlan) -> dict[int, str]:
    faults = dict.fromkeys(plan.missing_ranks, "missing: no file for it")
    for rank in plan.ranks:
        lost = losses(rank)
        if lost:
            faults[rank.rank] = "; ".join(lost)
    return faults
