"""Auditing again whenever a file changes, and saying only what that changed."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import msgspec

from dsv4prof.api.audit_targets import Targets, targets
from dsv4prof.api.auditing import AuditRequest, audit_code
from dsv4prof.api.words import plural
from dsv4prof.errors import Dsv4profError
from dsv4prof.model.finding import SourceFinding
from dsv4prof.model.report import Report, Verdict
from dsv4prof.sync.code.files import discover
from dsv4prof.sync.code.options import AuditOptions

_PAUSE_S = 0.5

Stamp = dict[str, tuple[int, int]]


def watch(
    paths: Sequence[str], request: AuditRequest, *, pause: Callable[[], None] = lambda: time.sleep(_PAUSE_S)
) -> Iterator[Report]:
    """The report, and then, for ever, one after each change of a file: with the new findings and those that are gone.

    A change is seen by time and size of the audited files, by files that come and by files that go. Raises as
    `audit_code` for the first report; later ones say what is wrong in a note of an empty report.
    """
    where = targets(paths)
    stamp = stamps(where, request.options)
    before = audit_code(paths, request)
    always = _unread(before)
    yield before
    while True:
        pause()
        now = stamps(where, request.options)
        if now == stamp:
            continue
        changed = sum(now.get(path) != stamp.get(path) for path in {*now, *stamp})
        stamp = now
        try:
            after = carried(before, audit_code(paths, request), always)
        except Dsv4profError as error:
            # The last file has gone, a baseline is being edited: the next change may mend it.
            yield _nothing(before, changed, error)
            continue
        yield difference(before, after, changed)
        before = after


def carried(before: Report, after: Report, always: frozenset[str] = frozenset()) -> Report:
    """The later report with what only the earlier one has, while files cannot be read that could be: somebody types.

    A file that cannot be read takes findings of other files with it, which know of a value by its functions. `always`
    are the files that could not be read from the beginning.
    """
    if _unread(after) <= always:
        return after
    there = {finding.fingerprint for finding in _source(after)}
    kept = [finding for finding in _source(before) if finding.fingerprint not in there]
    return msgspec.structs.replace(after, findings=[*after.findings, *kept])


def _unread(report: Report) -> frozenset[str]:
    return frozenset(problem["path"] for problem in report.data["problems"])


def _nothing(before: Report, changed: int, error: Dsv4profError) -> Report:
    said = f"{plural(changed, 'file')} changed: {error.message}"
    empty = Verdict(exit_code=0, summary=said)
    return msgspec.structs.replace(
        before, checks=[], sections=[], metrics=[], findings=[], notes=[], verdict=empty, next_command=None
    )


def stamps(where: Targets, options: AuditOptions) -> Stamp:
    """Time and size of every file that an audit would read, by its path."""
    found: Stamp = {}
    for part in where.parts:
        for path in discover(part.root, options):
            full = part.folder / path
            try:
                status = full.stat()
            except OSError:
                continue
            found[str(full)] = (status.st_mtime_ns, status.st_size)
    return found


def difference(before: Report, after: Report, changed: int) -> Report:
    """The later report, with only the findings that the earlier one has not, and those that only it has, as gone."""
    old, new = _source(before), _source(after)
    there = Counter(finding.fingerprint for finding in new)
    known = Counter(finding.fingerprint for finding in old)
    come = [msgspec.structs.replace(each, status="new") for each in new if not known[each.fingerprint]]
    gone = [msgspec.structs.replace(each, status="gone") for each in old if not there[each.fingerprint]]
    said = (
        f"{plural(changed, 'file')} changed: {len(come):,} new, {len(gone):,} gone, {len(new) - len(come):,} as before"
    )
    return msgspec.structs.replace(
        after,
        sections=[],
        metrics=[],
        findings=[*come, *gone],
        notes=[],
        verdict=Verdict(exit_code=after.verdict.exit_code, summary=said),
        next_command=None,
    )


def _source(report: Report) -> list[SourceFinding]:
    return [finding for finding in report.findings if isinstance(finding, SourceFinding)]
