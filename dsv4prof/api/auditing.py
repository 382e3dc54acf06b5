"""The audit of source as a report: findings that nobody has allowed, worst first, against a baseline, a revision or
labels where they are given."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import msgspec

from dsv4prof import __version__
from dsv4prof.api.audit_findings import worst_first
from dsv4prof.api.audit_running import problem_line
from dsv4prof.api.audit_sections import (
    counts,
    label_facts,
    label_metrics,
    label_sections,
    statistics,
    suppressed_facts,
)
from dsv4prof.api.audit_state import Audited, compare_with, look
from dsv4prof.api.audit_targets import printable, targets
from dsv4prof.api.audit_view import View
from dsv4prof.api.audit_witness import bear_witness, read_runs
from dsv4prof.api.verdicts import verdict
from dsv4prof.api.words import plural
from dsv4prof.errors import MissingExtraError, OutputError, UsageError
from dsv4prof.model.finding import SourceFinding
from dsv4prof.model.report import Check, Provenance, Report, Section, Verdict
from dsv4prof.sync import baseline as baselines
from dsv4prof.sync.code.fixes.apply import FixedFile
from dsv4prof.sync.code.found import Found
from dsv4prof.sync.code.living.labels import Outcome, judge, read_labels
from dsv4prof.sync.code.options import AuditOptions
from dsv4prof.sync.code.values import LEVELS

_VERSION = re.compile(r"(\d+(?:\.\d+)*)(?:(?:a|b|rc|\.dev|\.post|\+)[\w.+]*)?")


class AuditRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What to report of an audit.

    `level` is the least sure one shown, `select` and `ignore` are codes or starts of codes. `labels` adds recall and
    false findings and changes nothing else. `baseline` leaves only findings that it does not hold, and fails on any of
    them unless `fail_on` says otherwise; `write_baseline` writes every finding, shown or not. `diff` is a git revision:
    only code that changed since is reported. `session` joins what was measured. `ran` are exports of
    runs, or sessions: what they exercised. `fix` writes what can be mended first. `edits` adds the text of fixes to the
    findings, where libcst is there. `options` are the detector's own.
    """

    level: str = "likely"
    select: Sequence[str] = ()
    ignore: Sequence[str] = ()
    hot_only: bool = False
    labels: Path | None = None
    baseline: Path | None = None
    write_baseline: Path | None = None
    diff: str | None = None
    session: str | None = None
    ran: Sequence[str] = ()
    sessions_dir: Path = Path("traces/local")
    fix: bool = False
    edits: bool = False
    statistics: bool = False
    fail_on: str | None = None
    options: AuditOptions = AuditOptions()

    def view(self) -> View:
        return View.of(self.level, self.select, self.ignore, self.hot_only)


def audit_code(paths: Sequence[str] = (), request: AuditRequest | None = None) -> Report:
    """The syncs of Python files and folders; without any, of the working directory.

    Raises InputError where nothing can be audited or a file given is damaged, UsageError for an impossible request,
    OutputError where a baseline or a fix may not be written, MissingExtraError for a fix without libcst.
    """
    request = _sound(request)
    view = request.view()
    sites = read_labels(request.labels) if request.labels else None
    known = baselines.read_baseline(request.baseline) if request.baseline else None
    if request.write_baseline is not None:
        if request.diff is not None:
            raise UsageError("a baseline holds all findings, --diff some", hint="write it without --diff")
        baselines.check_target(request.write_baseline)
    where = targets(paths)
    runs = read_runs(request.ran, request.sessions_dir) if request.ran else []
    audited = look(where, request.options, request.diff)
    if request.fix:
        audited = _fixed(audited, view, request)
    outcome = judge(audited.audit.found, sites, audited.audit.paths) if sites is not None else None
    everything = list(audited.findings)
    if known is not None:
        compare_with(audited, known)
    if request.write_baseline is not None:
        _write(request.write_baseline, everything, audited)
    sections = bear_witness(audited, runs, audited.touched if request.diff else None) if runs else []
    if request.edits:
        _add_edits(audited)
    if request.session is not None:
        _add_costs(audited, request)
    return _report(audited, everything, outcome, view, request, list(paths), sections)


def _sound(request: AuditRequest | None) -> AuditRequest:
    """With torch's version as numbers alone: `torch.__version__` says more.

    Runs are asked about hot functions. Raises UsageError for what is no version.
    """
    request = request or AuditRequest()
    if request.ran:
        listed = msgspec.structs.replace(request.options, list_hot=True)
        request = msgspec.structs.replace(request, options=listed)
    given = request.options.torch_version
    if not given:
        return request
    numbers = _VERSION.fullmatch(given)
    if numbers is None:
        raise UsageError(f"{given!r} is no version of torch", hint="such as 2.9 or 2.13.0")
    options = msgspec.structs.replace(request.options, torch_version=numbers[1])
    return msgspec.structs.replace(request, options=options)


def cache_folder() -> Path:
    """Where what was read of unchanged files is kept for this user."""
    from platformdirs import user_cache_path

    return user_cache_path("dsv4prof", appauthor=False) / "audit"


def preview_fixes(paths: Sequence[str] = (), request: AuditRequest | None = None) -> tuple[str, list[str]]:
    """What `fix` would write, as one unified diff, and notes; nothing is written. Raises as `audit_code`."""
    from dsv4prof.api.audit_fixes import diff_of

    request = _sound(request)
    audited = look(targets(paths), request.options, request.diff)
    planned, notes = _planned(audited, request.view())
    number = sum(len(file.edits) for file in planned)
    note = f"{plural(number, 'finding')} in {plural(len(planned), 'file')} can be fixed"
    problems = [problem_line(problem, audited.where) for problem in audited.audit.problems]
    return diff_of(planned, audited.where), [
        *problems,
        *notes,
        note if number else "nothing can be fixed automatically",
    ]


def _planned(audited: Audited, view: View) -> tuple[list[FixedFile], list[str]]:
    from dsv4prof.api.audit_fixes import plan_fixes

    return plan_fixes(audited.where, [found for finding, found in _there(audited) if view.asks_for(finding)])


def _there(audited: Audited) -> list[tuple[SourceFinding, Found]]:
    """The findings that stand in the files as they are now, with what the detector said of them."""
    there = [finding for finding in audited.findings if finding.status not in ("fixed", "removed")]
    return [(finding, audited.found[finding.fingerprint]) for finding in there if finding.fingerprint in audited.found]


def _fixed(audited: Audited, view: View, request: AuditRequest) -> Audited:
    """The files are mended, and looked at again."""
    from dsv4prof.api.audit_fixes import write_fixes

    planned, notes = _planned(audited, view)
    if not planned:
        audited.notes += notes
        audited.notes.append("nothing could be fixed automatically")
        return audited
    write_fixes(planned, audited.where)
    again = look(audited.where, request.options, request.diff)
    number = sum(len(file.edits) for file in planned)
    again.notes += notes
    again.notes.append(f"fixed {plural(number, 'finding')} in {plural(len(planned), 'file')}")
    return again


def _add_edits(audited: Audited) -> None:
    """The text of each fix. Without libcst a report is as good, and has none."""
    from dsv4prof.api.audit_fixes import edits_of, plan_fixes

    there = _there(audited)
    try:
        planned, notes = plan_fixes(audited.where, [found for _, found in there])
    except MissingExtraError as error:
        audited.notes.append(f"without the text of fixes: {error.message}")
        return
    audited.notes += notes
    edits = edits_of(planned, audited.where)
    texts = {finding.fingerprint: edits[id(found)] for finding, found in there if id(found) in edits}
    audited.findings = [
        msgspec.structs.replace(each, edits=[texts[each.fingerprint]]) if each.fingerprint in texts else each
        for each in audited.findings
    ]


def _add_costs(audited: Audited, request: AuditRequest) -> None:
    from dsv4prof.api.audit_costs import add_costs

    add_costs(audited, request.session or "", request.sessions_dir, audited.touched if request.diff else None)


def _write(path: Path, findings: Sequence[SourceFinding], audited: Audited) -> None:
    from dsv4prof.recorder.atomic import write_atomic

    made = baselines.make_baseline(findings, f"dsv4prof {__version__}")
    try:
        # A link stays one.
        write_atomic(path.resolve(), baselines.encode_baseline(made))
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror or error}", hint="name another file") from error
    audited.notes.append(f"wrote {path}: {plural(len(findings), 'finding')}, of every level")


def _report(
    audited: Audited,
    everything: Sequence[SourceFinding],
    outcome: Outcome | None,
    view: View,
    request: AuditRequest,
    inputs: list[str],
    more: Sequence[Section],
) -> Report:
    audit = audited.audit
    shown = worst_first(each for each in audited.findings if view.asks_for(each) and view.is_sure_enough(each))
    versions = {"dsv4prof": __version__}
    return Report(
        kind="audit-statistics" if request.statistics else "audit",
        provenance=Provenance(
            command="audit code",
            inputs=[printable(path) for path in inputs],
            session=request.session,
            versions=versions,
        ),
        checks=[Check("file", False, problem_line(problem, audited.where)) for problem in audit.problems],
        sections=[
            *(statistics(shown) if request.statistics else []),
            *(label_sections(outcome, audited.where) if outcome else []),
            *more,
        ],
        metrics=label_metrics(outcome) if outcome else [],
        findings=list(shown),
        notes=[*_not_shown(audited, shown, view), *audited.notes, *audit.notes],
        verdict=_verdict(audited, shown, request),
        next_command=f"dsv4prof rule {shown[0].code}" if shown else None,
        data={
            "root": printable(str(audited.where.root)),
            "files": audit.files,
            "lines": audit.lines,
            "functions": audit.functions,
            "counts": {**counts(everything), "suppressed": len(audited.suppressed), "shown": len(shown)},
            "suppressed": suppressed_facts(audited.suppressed),
            "problems": [
                {"path": printable(each.path), "line": each.line, "message": each.message} for each in audit.problems
            ],
            **({"labels": label_facts(outcome)} if outcome else {}),
            **audited.facts,
        },
    )


def _not_shown(audited: Audited, shown: Sequence[SourceFinding], view: View) -> list[str]:
    lines = []
    asked = [finding for finding in audited.findings if view.asks_for(finding)]
    hidden = [finding.level for finding in asked if not view.is_sure_enough(finding)]
    if hidden:
        levels = ", ".join(f"{hidden.count(level):,} {level}" for level in reversed(LEVELS) if level in hidden)
        lines.append(f"not shown: {levels}; --level {min(hidden, key=LEVELS.index)} shows them")
    if len(asked) < len(audited.findings):
        lines.append(f"not shown: {len(audited.findings) - len(asked):,} of other rules or off the hot paths")
    if audited.suppressed:
        lines.append(f"{plural(len(audited.suppressed), 'finding')} allowed by remarks in the source")
    return lines


def _verdict(audited: Audited, shown: Sequence[SourceFinding], request: AuditRequest) -> Verdict:
    """What was fixed fails nothing. A baseline is there to fail on what is not in it."""
    fail_on = request.fail_on or ("note" if request.baseline else "never")
    judged = verdict([finding for finding in shown if finding.status != "fixed"], fail_on)
    threshold = "" if fail_on == "never" else f"; fails on {fail_on}"
    return msgspec.structs.replace(judged, summary=_summary(audited, shown) + threshold)


def _summary(audited: Audited, shown: Sequence[SourceFinding]) -> str:
    """`1 new, 1 removed (not shown safe), 43 unchanged`, or `12 findings (4 certain, 8 likely; 3 on hot paths)`."""
    over = f" in {plural(audited.audit.files, 'file')}"
    if "changes" in audited.facts or "baseline" in audited.facts:
        statuses = [finding.status for finding in shown]
        words = {"new": "new", "fixed": "fixed", "removed": "removed (not shown safe)"}
        said = [f"{statuses.count(key):,} {word}" for key, word in words.items() if key == "new" or key in statuses]
        return ", ".join([*said, f"{len(audited.known):,} unchanged"]) + over
    if not shown:
        return f"no findings{over}"
    levels = [(level, sum(f.level == level for f in shown)) for level in reversed(LEVELS)]
    sure = ", ".join(f"{number:,} {level}" for level, number in levels if number)
    hot = sum(finding.hot for finding in shown)
    return f"{plural(len(shown), 'finding')} ({sure}; {hot:,} on hot paths){over}"


__all__ = ["AuditOptions", "AuditRequest", "audit_code", "cache_folder", "preview_fixes"]
