"""An audit of source beside recorded runs: every finding says whether anybody ran it, what only a run saw is a finding
too, and the hot functions that a change touched are listed with who exercised them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from dsv4prof.api.audit_findings import severity
from dsv4prof.api.audit_seen import Ranges, Seen, seen_findings
from dsv4prof.api.audit_state import Audited
from dsv4prof.api.words import plural
from dsv4prof.errors import InputError
from dsv4prof.model.finding import Severity, SourceFinding
from dsv4prof.model.report import Column, Section
from dsv4prof.sync.code.found import HotFunction
from dsv4prof.sync.code.values import LEVELS
from dsv4prof.sync.exercised import Ran, RanSite, ran_of_session, read_ran
from dsv4prof.sync.run_sources import as_of
from dsv4prof.sync.witness import Place, Witness, Witnesses, same_file

_CERTAIN = LEVELS[-1]
_MOST_ROWS = 40


def read_runs(names: Sequence[str], sessions_dir: Path) -> list[Ran]:
    """Exports of `audit run` by their file, recorded sessions by their id. Raises InputError."""
    return [read_ran(Path(name)) if Path(name).is_file() else _of_session(name, sessions_dir) for name in names]


def _of_session(name: str, sessions_dir: Path) -> Ran:
    # A session is analysed for this, which an audit of source alone must not load.
    from dsv4prof.api.analyzing import call_sites
    from dsv4prof.api.sources import gather, resolve

    try:
        source = resolve([name], sessions_dir)
    except InputError as error:
        hint = "name a file that `audit run --export` wrote, or a session's id"
        raise InputError(f"{name} is no recorded run: {error.message}", hint=hint) from error
    return ran_of_session(source.label, gather(source).trace, call_sites(source.session))


def bear_witness(audited: Audited, runs: Sequence[Ran], touched: Ranges | None) -> list[Section]:
    """Fills `ran` of every finding, adds what only the runs saw, and tells of the hot functions.

    `touched` are the changed ranges of each file where only changes are looked at, None where all of it is.
    """
    current = [as_of(run, lambda name: _read(audited, name)) for run in runs]
    audited.notes += [note for _, notes in current for note in notes]
    witnesses = Witnesses([run for run, _ in current])
    audited.findings = [_seen(finding, witnesses) for finding in audited.findings]
    audited.suppressed = [(_seen(finding, witnesses), by) for finding, by in audited.suppressed]
    more = _only_run(audited, witnesses, touched)
    audited.findings += [_seen(finding, witnesses) for finding in more]
    places = [each for each in audited.audit.hot if touched is None or _touches(each, touched.get(each.path, []))]
    told = [(each, witnesses.of(Place(each.path, each.function, each.line, each.end_line))) for each in places]
    audited.notes += _notes(audited.findings, told, len(more), changed=touched is not None)
    audited.facts["runs"] = [run.run for run in runs]
    audited.facts["hot_functions"] = [
        {"path": each.path, "line": each.line, "function": each.function, "ran": witness.what, "runs": witness.runs}
        for each, witness in told
    ]
    return _section(audited, told) if touched is not None else []


def _read(audited: Audited, name: str) -> bytes | None:
    """The source as it is now of a file that a run names."""
    path = next((path for path in audited.audit.paths if same_file(path, name)), None)
    return audited.where.read(path) if path is not None else None


def _seen(finding: SourceFinding, witnesses: Witnesses) -> SourceFinding:
    """What waited in a run is certain, whatever the source let us infer. What a change took away cannot have run."""
    if finding.side:
        return finding
    witness = witnesses.of(
        Place(finding.path, finding.function, finding.statement_line, finding.statement_end, finding.code)
    )
    told = msgspec.structs.replace(finding, ran=witness.text)
    if witness.what not in ("waited", "hazard"):
        return told
    raised = max(finding.severity, severity(finding.code, _CERTAIN, finding.hot), Severity.WARNING, key=_rank)
    return msgspec.structs.replace(told, level=_CERTAIN, severity=raised)


def _rank(severity: Severity) -> int:
    return severity.rank


def _only_run(audited: Audited, witnesses: Witnesses, touched: Ranges | None) -> list[SourceFinding]:
    """Sites that waited where the audit of source saw nothing, in the files that it read."""
    known = [*audited.findings, *audited.known, *(finding for finding, _ in audited.suppressed)]
    places = [
        Place(each.path, each.function, each.statement_line, each.statement_end, each.code)
        for each in known
        if not each.side
    ]
    seen = [
        Seen(site.file, site.line, site.function, site.code, site.form, _reason(site))
        for _, site in witnesses.not_in(places)
        if site.kind.waits or site.code.startswith("DSV2")
    ]
    return seen_findings(audited, seen, touched)


def _reason(site: RanSite) -> str:
    return f"a run saw it, the source does not tell: {site.reason}" if site.reason else "a run saw it"


def _touches(function: HotFunction, ranges: Sequence[tuple[int, int]]) -> bool:
    return any(function.line <= last and first <= function.end_line for first, last in ranges)


def _notes(
    findings: Sequence[SourceFinding], told: Sequence[tuple[HotFunction, Witness]], more: int, *, changed: bool
) -> list[str]:
    waited = sum(finding.ran.startswith("waited") for finding in findings)
    notes = [f"{plural(waited, 'finding')} waited in a given run; {more:,} were seen by runs alone"]
    ran = sum(witness.what in ("waited", "ran", "entered") for _, witness in told)
    which = "hot functions that the change touched" if changed else "hot functions"
    return [*notes, *([f"exercised: {ran:,} of {len(told):,} {which}"] if told else [])]


def _section(audited: Audited, told: Sequence[tuple[HotFunction, Witness]]) -> list[Section]:
    if not told:
        return []
    # What nobody ran is what a reviewer has to know.
    ordered = sorted(told, key=lambda pair: (pair[1].what != "not run", pair[0].path, pair[0].line))
    rest = len(ordered) - _MOST_ROWS
    return [
        Section(
            key="hot_functions",
            title="Hot functions that the change touched",
            columns=[Column("function", "function"), Column("where", "where"), Column("ran", "exercised")],
            rows=[
                {
                    "function": each.function,
                    "where": f"{audited.where.shown(each.path)}:{each.line}",
                    "ran": witness.text,
                }
                for each, witness in ordered[:_MOST_ROWS]
            ],
            note=f"{rest:,} more; --format json has all" if rest > 0 else None,
        )
    ]
