"""What a change did to the findings of the code that it touched: the seam between the audit and `sync.code.changes`."""

from __future__ import annotations

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
from dsv4prof.sync.code.living.suppressions import sort_out
from dsv4prof.sync.code.options import AuditOptions
from dsv4prof.sync.code.values import LEVELS

UNTOUCHED = "untouched"


class Gone(msgspec.Struct, frozen=True, kw_only=True):
    """A finding of the old text that the new one has no more. `status` is fixed or removed (not shown safe)."""

    found: Found
    status: str
    message: str
    proof: str
    severity: Severity


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """`audit` holds the findings of the touched files as they are now; `status` says of each new, unchanged (on touched
    code) or untouched. `touched` are the line ranges (first, last) of each file that are new."""

    audit: Audit
    status: list[str]
    gone: list[Gone]
    touched: dict[str, list[tuple[int, int]]] = {}
    notes: list[str] = []


def audit_changes(targets: Targets, options: AuditOptions, revision: str) -> Compared:
    """The findings on code that changed since `revision`, and those that the change took away.

    Both versions are read in the context of the working tree. Raises as `changes_since`.
    """
    audits: list[Audit] = []
    changes: list[Change] = []
    touched: dict[str, list[tuple[int, int]]] = {}
    files = 0
    said: list[str] = []
    for part in targets.parts:
        change_set = _limited(changes_since(part.folder, revision), part)
        files += len(change_set.files)
        said += change_set.notes
        if not change_set.files:
            continue
        new, old = _both(part, change_set, options)
        found = compare(
            change_set,
            old,
            new,
            protected=_protected(change_set),
            exposed=_exposed(part.folder, change_set, old, new),
            read=_reader(part.folder),
            paths=partial(discover, part.root, options),
        )
        audits.append(rebased(new, part, targets))
        changes += _rebased(found, new, audits[-1], part, targets)
        ranges = {file.path: file.lines for file in change_set.files}
        touched |= {moved: ranges.get(path, []) for path, moved in zip(new.paths, audits[-1].paths, strict=True)}
    audit = joined(targets, audits)
    kinds = {id(change.found): change.status for change in changes}
    return Compared(
        audit=audit,
        status=[kinds.get(id(found), UNTOUCHED) for found in audit.found],
        gone=[_gone(change) for change in changes if change.status in ("fixed", "removed")],
        touched=touched,
        notes=[f"{plural(files, 'changed Python file')} since {revision}", *dict.fromkeys(said)],
    )


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


def _exposed(folder: Path, changes: ChangeSet, old: Audit, new: Audit) -> Callable[[Found, Found], bool]:
    """Whether a remark allowed the first of two findings, and none allows the second."""
    before = {file.old_path: file.before for file in changes.files}
    was = {id(each.found) for each in sort_out(old.found, old.paths, before.get).suppressed}
    now = {id(each.found) for each in sort_out(new.found, new.paths, _reader(folder)).suppressed}
    return lambda earlier, later: id(earlier) in was and id(later) not in now


def _reader(folder: Path) -> Callable[[str], bytes | None]:
    def read(path: str) -> bytes | None:
        try:
            return (folder / path).read_bytes()
        except OSError:
            return None

    return read


def _gone(change: Change) -> Gone:
    found = change.found
    return Gone(
        found=found,
        status=change.status,
        message=_message(change),
        proof=change.proof,
        severity=_severity(change),
    )


def _message(change: Change) -> str:
    """What went, and the first lines that it may have protected."""
    text = f"{change.found.code} gone: `{change.found.text}`"
    if change.status == "fixed":
        return f"{text}: fixed"
    places = ", ".join(f"{item.path}:{item.line}" for item in change.staging[:3])
    more = len(change.staging) - 3
    around = f" (near it: {places}{f' and {more} more' if more > 0 else ''})" if places else ""
    return f"{text}: removed, not shown safe{around}"


def _severity(change: Change) -> Severity:
    if change.status == "fixed":
        return Severity.NOTE
    if change.protects:
        return Severity.ERROR
    return Severity.NOTE if change.found.level == LEVELS[0] else Severity.WARNING
