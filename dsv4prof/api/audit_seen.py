"""Findings of an audit of source that the source itself did not give: a run or a trace saw the wait."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from dsv4prof.api.audit_findings import source_findings
from dsv4prof.api.audit_state import Audited
from dsv4prof.model.finding import SourceFinding
from dsv4prof.sync import catalogue
from dsv4prof.sync.code.found import Found
from dsv4prof.sync.code.values import LEVELS
from dsv4prof.sync.witness import same_file

Ranges = dict[str, list[tuple[int, int]]]


class Seen(msgspec.Struct, frozen=True):
    """A wait at a place; `file` is the path of the machine that ran, `reason` whole words."""

    file: str
    line: int
    function: str
    code: str
    form: str
    reason: str


def seen_findings(audited: Audited, seen: Sequence[Seen], touched: Ranges | None) -> list[SourceFinding]:
    """One a place and code, in order of place, for files that were audited; with `touched` only there."""
    made: dict[tuple[str, int, str], Found] = {}
    for each in seen:
        path = next((path for path in audited.audit.paths if same_file(path, each.file)), None)
        if path is None or not catalogue.of_code(each.code):
            continue
        if touched is not None and not any(first <= each.line <= last for first, last in touched.get(path, [])):
            continue
        made.setdefault((path, each.line, each.code), _found(path, each, audited))
    return source_findings([made[key] for key in sorted(made)], audited.where.shown, audited.where.read)


def _found(path: str, seen: Seen, audited: Audited) -> Found:
    lines = (audited.where.read(path) or b"").decode(errors="replace").splitlines()
    forms = catalogue.of_code(seen.code)
    return Found(
        path=path,
        line=seen.line,
        end_line=seen.line,
        column=0,
        end_column=0,
        statement_line=seen.line,
        statement_end=seen.line,
        code=seen.code,
        form=seen.form if any(form.id == seen.form for form in forms) else forms[0].id,
        level=LEVELS[-1],
        function=seen.function,
        text=lines[seen.line - 1].strip() if 0 < seen.line <= len(lines) else "",
        reason=seen.reason,
    )
