"""The audit of source as a report: findings that nobody has allowed, worst first, against a baseline, a revision or
labels where they are given."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from dsv4prof import __version__
from dsv4prof.api.audit_changes import Compared, audit_changes
from dsv4prof.api.audit_findings import gone_finding, idle_findings, source_findings, worst_first
from dsv4prof.api.audit_running import problem_line, run_audit
from dsv4prof.api.audit_sections import (
    counts,
    label_facts,
    label_metrics,
    label_sections,
    statistics,
    suppressed_facts,
)
from dsv4prof.api.audit_targets import Targets, targets
from dsv4prof.api.audit_view import View
from dsv4prof.api.verdicts import verdict
from dsv4prof.api.words import plural
from dsv4prof.errors import OutputError, UsageError
from dsv4prof.model.finding import SourceFinding
from dsv4prof.model.report import Check, Provenance, Report, Section, Verdict
from dsv4prof.sync import baseline as baselines
from dsv4prof.sync.code.found import Audit
from dsv4prof.sync.code.living.labels import Outcome, judge, read_labels
from dsv4prof.sync.code.living.suppressions import Suppressed, sort_out
from dsv4prof.sync.code.options import AuditOptions

_KNOWN = ("unchanged", "moved")


class _Audited(msgspec.Struct, kw_only=True):
    """The state between the detector and the report. `findings` are those that no remark allows, in order of place."""

    where: Targets
    audit: Audit
    findings: list[SourceFinding]
    suppressed: list[tuple[SourceFinding, Suppressed]]
    known: list[SourceFinding] = []
    gone: list[baselines.Entry] = []
    notes: list[str] = []
    facts: dict[str, Any] = {}


def audit_code(
    paths: Sequence[str] = (),
    *,
    labels: Path | None = None,
    baseline: Path | None = None,
    write_baseline: Path | None = None,
    diff: str | None = None,
    level: str = "likely",
    select: Sequence[str] = (),
    ignore: Sequence[str] = (),
    hot_only: bool = False,
    options: AuditOptions | None = None,
    statistics_only: bool = False,
    fail_on: str | None = None,
) -> Report:
    """The syncs of Python files and folders (default: the working directory) that are at least `level`.

    `labels` adds recall and false findings and changes nothing else. `baseline` leaves only findings that it does not
    hold, and fails on any of them unless `fail_on` says otherwise; `write_baseline` writes every finding, shown or not.
    `diff` is a git revision: only code that changed since is reported. `options` are the detector's own.

    Raises InputError where nothing can be audited or a file given is damaged, UsageError for an impossible request,
    OutputError where the baseline may not be written.
    """
    view = View.of(level, select, ignore, hot_only)
    sites = read_labels(labels) if labels else None
    known = baselines.read_baseline(baseline) if baseline else None
    if write_baseline is not None:
        if diff is not None:
            raise UsageError("a baseline holds all findings, --diff some", hint="write it without --diff")
        baselines.check_target(write_baseline)
    audited = _audit(targets(paths), options or AuditOptions(), diff)
    everything = list(audited.findings)
    outcome = judge(audited.audit.found, sites, audited.audit.paths) if sites is not None else None
    if known is not None:
        _compare(audited, known)
    if write_baseline is not None:
        _write(write_baseline, everything, audited)
    shown = _shown(audited, view)
    return Report(
        kind="audit-statistics" if statistics_only else "audit",
        provenance=Provenance(command="audit code", inputs=list(paths), versions={"dsv4prof": __version__}),
        checks=[_check(problem_line(problem, audited.where)) for problem in audited.audit.problems],
        sections=_sections(shown, outcome, audited.where, statistics_only),
        metrics=label_metrics(outcome) if outcome else [],
        findings=list(shown),
        notes=[*_summary(audited, shown, view), *audited.notes, *audited.audit.notes],
        verdict=_verdict(shown, fail_on or ("note" if baseline else "never")),
        next_command=f"dsv4prof rule {shown[0].code}" if shown else None,
        data={
            "root": str(audited.where.root),
            "files": audited.audit.files,
            "lines": audited.audit.lines,
            "functions": audited.audit.functions,
            "counts": {**counts(everything), "suppressed": len(audited.suppressed), "shown": len(shown)},
            "suppressed": suppressed_facts(audited.suppressed),
            "problems": msgspec.to_builtins(audited.audit.problems),
            **({"labels": label_facts(outcome)} if outcome else {}),
            **audited.facts,
        },
    )


def _audit(where: Targets, options: AuditOptions, diff: str | None) -> _Audited:
    """Run the detector, and apply the remarks of the source. Ordinals count allowed findings too."""
    compared = audit_changes(where, options, diff) if diff is not None else None
    audit = compared.audit if compared is not None else run_audit(where, options)
    made = source_findings(audit.found, where.shown, where.read)
    if compared is not None:
        made = [msgspec.structs.replace(f, status=s) for f, s in zip(made, compared.status, strict=True)]
    by_found = {id(found): finding for found, finding in zip(audit.found, made, strict=True)}
    sorted_out = sort_out(audit.found, audit.paths, where.read)
    kept = [by_found[id(found)] for found in sorted_out.kept]
    audited = _Audited(
        where=where,
        audit=audit,
        findings=[*kept, *idle_findings(sorted_out.idle, where.shown)],
        suppressed=[(by_found[id(each.found)], each) for each in sorted_out.suppressed],
    )
    if compared is not None:
        _add_changes(audited, compared, diff or "")
    return audited


def _add_changes(audited: _Audited, compared: Compared, revision: str) -> None:
    """What the change left alone is counted, what it took away is a finding of its own."""
    gone = [gone_finding(each, audited.where.shown) for each in compared.gone]
    unchanged = [finding for finding in audited.findings if finding.status in _KNOWN]
    audited.findings = [*(finding for finding in audited.findings if finding.status not in _KNOWN), *gone]
    audited.known = unchanged
    words = ("new", "fixed", "removed")
    number = {word: sum(finding.status == word for finding in audited.findings) for word in words}
    audited.facts["changes"] = {
        "revision": revision,
        **number,
        "unchanged": len(unchanged),
        "unchanged_findings": msgspec.to_builtins(unchanged),
    }
    audited.notes += compared.notes


def _compare(audited: _Audited, known: baselines.Baseline) -> None:
    """Only what the baseline does not hold is left; what is gone from the code is told."""
    comparison = baselines.compare(audited.findings, known)
    status = [finding.status for finding in comparison.findings]
    audited.known += [finding for finding in comparison.findings if finding.status in _KNOWN]
    audited.findings = [finding for finding in comparison.findings if finding.status not in _KNOWN]
    audited.gone = [entry for entry in comparison.gone if _was_audited(audited, entry)]
    audited.facts["baseline"] = {
        "new": status.count("new"),
        "unchanged": status.count("unchanged"),
        "moved": status.count("moved"),
        "fixed": len(audited.gone),
        "fixed_entries": msgspec.to_builtins(audited.gone),
    }
    moved = status.count("moved")
    held = f"{plural(len(status) - status.count('new'), 'finding')} in the baseline"
    audited.notes.append(held + (f", {moved:,} of them at a new place" if moved else ""))
    if audited.gone:
        audited.notes.append(f"{len(audited.gone):,} of the baseline fixed; rewrite the baseline")


def _was_audited(audited: _Audited, entry: baselines.Entry) -> bool:
    """Nothing is fixed in a file that was not looked at; a file that is gone took its findings with it."""
    if "changes" in audited.facts:
        return False
    return entry.path in audited.audit.paths or not (audited.where.root / entry.path).exists()


def _write(path: Path, findings: Sequence[SourceFinding], audited: _Audited) -> None:
    from dsv4prof.recorder.atomic import write_atomic

    made = baselines.make_baseline(findings, f"dsv4prof {__version__}")
    try:
        write_atomic(path, baselines.encode_baseline(made))
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror or error}", hint="name another file") from error
    audited.notes.append(f"wrote {path}: {plural(len(findings), 'finding')}")


def _shown(audited: _Audited, view: View) -> list[SourceFinding]:
    return worst_first(each for each in audited.findings if view.asks_for(each) and view.is_sure_enough(each))


def _sections(
    shown: Sequence[SourceFinding], outcome: Outcome | None, where: Targets, statistics_only: bool
) -> list[Section]:
    counted = statistics(shown) if statistics_only else []
    return [*counted, *(label_sections(outcome, where) if outcome else [])]


def _summary(audited: _Audited, shown: Sequence[SourceFinding], view: View) -> list[str]:
    """One line that adds up, and what is not shown."""
    audit = audited.audit
    over = f"{plural(audit.files, 'file')}, {plural(audit.lines, 'line')}"
    hot = sum(finding.hot for finding in shown)
    levels = [(level, sum(f.level == level for f in shown)) for level in ("certain", "likely", "possible")]
    by_level = ", ".join(f"{number:,} {level}" for level, number in levels if number)
    found = f"{plural(len(shown), 'finding')} ({by_level}; {hot:,} on hot paths)" if shown else "no findings"
    lines = [f"{found} in {over}"]
    asked = [finding for finding in audited.findings if view.asks_for(finding)]
    unsure = len(asked) - len(shown)
    if unsure:
        lines.append(f"not shown: {unsure:,} less sure ({_lower(asked, view)}); --level possible shows them")
    if len(asked) < len(audited.findings):
        lines.append(f"not shown: {len(audited.findings) - len(asked):,} of other rules or off the hot paths")
    if audited.suppressed:
        lines.append(f"{plural(len(audited.suppressed), 'finding')} allowed by remarks in the source")
    return lines


def _lower(asked: Sequence[SourceFinding], view: View) -> str:
    hidden = [finding.level for finding in asked if not view.is_sure_enough(finding)]
    return ", ".join(f"{hidden.count(level):,} {level}" for level in ("likely", "possible") if level in hidden)


def _verdict(shown: Sequence[SourceFinding], fail_on: str) -> Verdict:
    return verdict([finding for finding in shown if finding.status != "fixed"], fail_on)


def _check(message: str) -> Check:
    return Check(key="file", ok=False, message=message)
