"""What a change did to the findings of the code that it touched: the seam between the audit and `sync.code.changes`."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

import msgspec

from dsv4prof.api.audit_running import joined, rebased
from dsv4prof.api.audit_targets import Part, Targets, decode
from dsv4prof.api.words import plural
from dsv4prof.model.finding import Severity
from dsv4prof.sync.code.changes.compare import Change, Protected, compare, lines_of_interest
from dsv4prof.sync.code.changes.git import ChangedFile, ChangeSet, changes_since
from dsv4prof.sync.code.files import discover
from dsv4prof.sync.code.found import Audit, Found
from dsv4prof.sync.code.living.comments import read_allowances, worth_reading
from dsv4prof.sync.code.living.suppressions import Idle, Sorted, sort_out
from dsv4prof.sync.code.options import AuditOptions
from dsv4prof.sync.code.values import LEVELS

UNTOUCHED = "untouched"


class Gone(msgspec.Struct, frozen=True, kw_only=True):
    """A finding of the old text that the new one has no more. `status` is fixed or removed (not shown safe).

    `path` and `line` say where it stood in terms of the new text; line 0: the file is gone.
    """

    found: Found
    status: str
    message: str
    proof: str
    severity: Severity
    path: str
    line: int


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """`audit` holds the findings of the touched files as they are now; `status` says of each new, unchanged (on touched
    code) or untouched. `touched` are the line ranges (first, last) of each file that are new, or of functions that hold
    such a line; `stale` are the remarks of the old text, as often as each stood there, that allowed nothing even then.
    """

    audit: Audit
    status: list[str]
    gone: list[Gone]
    touched: dict[str, list[tuple[int, int]]] = {}
    stale: dict[str, Counter[str]] = {}
    notes: list[str] = []


def audit_changes(targets: Targets, options: AuditOptions, revision: str) -> Compared:
    """The findings on code that changed since `revision`, and those that the change took away.

    Both versions are read in the context of the working tree. Raises as `changes_since`.
    """
    audits: list[Audit] = []
    kinds: dict[int, str] = {}
    gone: list[Gone] = []
    touched: dict[str, list[tuple[int, int]]] = {}
    stale: dict[str, Counter[str]] = {}
    files = 0
    said: list[str] = []
    for part in targets.parts:
        change_set = _limited(changes_since(part.folder, revision), part)
        files += len(change_set.files)
        said += change_set.notes
        if not change_set.files:
            continue
        new, old = _both(part, change_set, options)
        before = {file.old_path: file.before for file in change_set.files}
        was, now = sort_out(old.found, old.paths, before.get), sort_out(new.found, new.paths, _reader(part.folder))
        found = compare(
            change_set,
            old,
            new,
            protected=_protected(change_set),
            exposed=_exposed(was, now),
            read=_reader(part.folder),
            paths=partial(discover, part.root, options),
        )
        audits.append(rebased(new, part, targets))
        moved = dict(zip(new.paths, audits[-1].paths, strict=True))
        for change, here in zip(found, _rebased(found, new, audits[-1], part, targets), strict=True):
            kinds[id(here.found)] = change.status
            if change.status in ("fixed", "removed"):
                gone.append(_gone(change, here.found, change_set, part, targets))
        for file in change_set.files:
            if file.path in moved:
                touched[moved[file.path]] = [*file.lines, *lines_of_interest(file)[1]]
                stale[moved[file.path]] = _stale(file, was)
    audit = joined(targets, audits)
    return Compared(
        audit=audit,
        status=[kinds.get(id(found), UNTOUCHED) for found in audit.found],
        gone=gone,
        touched=touched,
        stale=stale,
        notes=[f"{plural(files, 'changed Python file')} since {revision}", *dict.fromkeys(said)],
    )


def _moved(path: str, part: Part, targets: Targets) -> str:
    """A path of a part as one of the targets' root."""
    return os.path.relpath(part.folder / path, targets.root).replace(os.sep, "/")


def _stale(file: ChangedFile, was: Sorted) -> Counter[str]:
    """Remarks of the old text that allowed nothing then, where that text was looked at."""
    if file.before is None:
        return Counter()
    ranges = beside([*file.removed, *lines_of_interest(file)[0]])
    return Counter(each.remark.text for each in was.idle if each.path == file.old_path and touches(each, ranges))


def beside(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """With the lines next to them: where lines were only taken or put in, those alone stand on the other side."""
    return [(first - 1, last + 1) for first, last in ranges]


def touches(idle: Idle, ranges: Iterable[tuple[int, int]]) -> bool:
    """Whether the remark or the code that it speaks of lies in the ranges (first, last)."""
    spans = ((idle.remark.line, idle.remark.line), (idle.remark.first, idle.remark.last))
    return any(first <= end and start <= last for start, end in spans for first, last in ranges)


def _both(part: Part, changes: ChangeSet, options: AuditOptions) -> tuple[Audit, Audit]:
    """The audit of the touched functions as they are, and as they were."""
    from dsv4prof.sync.code.audit import versions

    sources: dict[str, bytes | None] = {file.path: None for file in changes.files}
    sources |= {file.old_path: file.before for file in changes.files if file.before is not None}
    interest = {file.path: lines_of_interest(file) for file in changes.files}
    now = msgspec.structs.replace(
        options,
        paths=tuple(part.folder / file.path for file in changes.files if file.after is not None),
        lines={file.path: interest[file.path][1] for file in changes.files},
    )
    before = msgspec.structs.replace(
        options,
        paths=tuple(part.folder / file.old_path for file in changes.files if file.before is not None),
        lines={file.old_path: interest[file.path][0] for file in changes.files},
        sources=sources,
    )
    return versions(part.root, now, before)


def _rebased(changes: Sequence[Change], new: Audit, moved: Audit, part: Part, targets: Targets) -> list[Change]:
    """The changes with the findings of `moved`, which is `new` with other paths: who they are is their identity."""
    here = dict(zip(map(id, new.found), moved.found, strict=True))
    gone = [change.found for change in changes if id(change.found) not in here]
    there = rebased(msgspec.structs.replace(new, found=gone), part, targets).found
    here |= dict(zip(map(id, gone), there, strict=True))
    return [msgspec.structs.replace(change, found=here[id(change.found)]) for change in changes]


def _limited(changes: ChangeSet, part: Part) -> ChangeSet:
    """Only what was named, where a part of a project was."""
    if not part.paths:
        return changes

    def named(file: ChangedFile) -> bool:
        full = part.folder / file.path
        return any(full == path or path in full.parents for path in part.paths)

    return msgspec.structs.replace(changes, files=[file for file in changes.files if named(file)])


def _protected(changes: ChangeSet) -> Iterable[Protected]:
    """What remarks of the old version say that their sync protects."""
    for file in changes.files:
        if file.before is None or not worth_reading(file.before):
            continue
        text = decode(file.before)
        if text is None:
            continue
        for remark in read_allowances(text):
            if remark.protects and not remark.fault:
                yield Protected(file.old_path, remark.first, remark.last, remark.codes, remark.protects, remark.reason)


def _exposed(old: Sorted, new: Sorted) -> Callable[[Found, Found], bool]:
    """Whether a remark allowed the first of two findings, and none allows the second."""
    was, now = ({id(each.found) for each in side.suppressed} for side in (old, new))
    return lambda earlier, later: id(earlier) in was and id(later) not in now


def _reader(folder: Path) -> Callable[[str], bytes | None]:
    def read(path: str) -> bytes | None:
        try:
            return (folder / path).read_bytes()
        except OSError:
            return None

    return read


def _gone(change: Change, found: Found, changes: ChangeSet, part: Part, targets: Targets) -> Gone:
    """`found` has the paths of the report, `change` those of the part."""
    file = next((file for file in changes.files if file.old_path == change.found.path), None)
    return Gone(
        found=found,
        status=change.status,
        message=_message(change, lambda path: targets.shown(_moved(path, part, targets))),
        proof=change.proof,
        severity=_severity(change),
        path=_moved(file.path, part, targets) if file is not None else found.path,
        line=file.now(found.line) if file is not None else 0,
    )


def _message(change: Change, shown: Callable[[str], str]) -> str:
    """What went, and the first lines that it may have protected."""
    text = f"{change.found.code} gone: `{change.found.text}`"
    if change.status == "fixed":
        return f"{text}: fixed"
    places = ", ".join(f"{shown(item.path)}:{item.line}" for item in change.staging[:3])
    more = len(change.staging) - 3
    around = f" (near it: {places}{f' and {more} more' if more > 0 else ''})" if places else ""
    return f"{text}: removed, not shown safe{around}"


def _severity(change: Change) -> Severity:
    if change.status == "fixed":
        return Severity.NOTE
    if change.protects:
        return Severity.ERROR
    return Severity.NOTE if change.found.level == LEVELS[0] else Severity.WARNING
