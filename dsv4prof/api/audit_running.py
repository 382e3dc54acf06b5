"""Running the detector over what was named, with paths that are relative to one root whatever was read beside it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache

import msgspec

from dsv4prof.api.audit_targets import Part, Targets
from dsv4prof.api.words import plural
from dsv4prof.errors import InputError
from dsv4prof.sync.code.found import Audit, Found, Problem, Step
from dsv4prof.sync.code.options import AuditOptions
from dsv4prof.sync.code.values import Why


def run_audit(targets: Targets, options: AuditOptions) -> Audit:
    """The findings of every part as one. Raises InputError where no file could be audited."""
    from dsv4prof.sync.code.audit import audit

    audits = []
    for part in targets.parts:
        made = audit(part.root, msgspec.structs.replace(options, paths=part.paths))
        audits.append(rebased(made, part, targets))
    return checked(joined(targets, audits), targets)


def joined(targets: Targets, audits: Sequence[Audit]) -> Audit:
    """In order of path and place."""
    return Audit(
        root=str(targets.root),
        files=sum(audit.files for audit in audits),
        lines=sum(audit.lines for audit in audits),
        functions=sum(audit.functions for audit in audits),
        found=sorted(
            (found for audit in audits for found in audit.found),
            key=lambda f: (f.path, f.line, f.column, f.end_line, f.end_column, f.code, f.form),
        ),
        problems=[problem for audit in audits for problem in audit.problems],
        # What one part lacks another may have.
        notes=[note for note in audits[0].notes if all(note in audit.notes for audit in audits)] if audits else [],
        paths=sorted({path for audit in audits for path in audit.paths}),
        hot=[function for audit in audits for function in audit.hot],
    )


def checked(audit: Audit, targets: Targets) -> Audit:
    """An audit of nothing is a mistake, not a clean bill."""
    if audit.paths:
        return audit
    if audit.problems:
        first, more = audit.problems[0], len(audit.problems) - 1
        rest = f" (and {plural(more, 'more file')})" if more else ""
        raise InputError(f"nothing could be audited: {problem_line(first, targets)}{rest}", hint="mend the files")
    raise InputError(f"there is no Python file in {targets.root}", hint="name files, or a folder that holds some")


def problem_line(problem: Problem, targets: Targets) -> str:
    """`pkg/mod.py:3: it is Python 2`."""
    place = targets.shown(problem.path) + (f":{problem.line}" if problem.line else "")
    # A name may hold a newline, and a line says one thing.
    return "".join(c if c.isprintable() else "?" for c in f"{place}: {problem.message}")


def rebased(audit: Audit, part: Part, targets: Targets) -> Audit:
    """The same with paths relative to the targets' root."""
    if part.folder == targets.root:
        return audit

    @cache
    def moved(path: str) -> str:
        return os.path.relpath(part.folder / path, targets.root).replace(os.sep, "/")

    def step(each: Step) -> Step:
        return msgspec.structs.replace(each, path=moved(each.path))

    def why(each: Why | None) -> Why | None:
        if each is None:
            return None
        return Why(each.text, each.line, moved(each.path) if each.path else "", why(each.before))

    def found(each: Found) -> Found:
        hot = tuple(step(item) for item in each.hot)
        return msgspec.structs.replace(each, path=moved(each.path), hot=hot, why=why(each.why))

    return msgspec.structs.replace(
        audit,
        found=[found(each) for each in audit.found],
        problems=[msgspec.structs.replace(each, path=moved(each.path)) for each in audit.problems],
        paths=[moved(path) for path in audit.paths],
        hot=[msgspec.structs.replace(each, path=moved(each.path)) for each in audit.hot],
    )
