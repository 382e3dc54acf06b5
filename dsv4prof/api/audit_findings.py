"""What the detector found, as findings of a report: words from the catalogue, places as a person counts them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache, lru_cache

import msgspec

from dsv4prof import rules
from dsv4prof.api.audit_changes import Gone
from dsv4prof.api.audit_targets import decode, printable
from dsv4prof.model.finding import Location, Severity, SourceFinding, SourceStep
from dsv4prof.sync import catalogue
from dsv4prof.sync.code.found import Found, Step
from dsv4prof.sync.code.living.fingerprints import Fingerprint, Identity, fingerprints
from dsv4prof.sync.code.living.suppressions import Idle
from dsv4prof.sync.code.values import LEVELS, Why

IDLE_REMARK = "DSV001"
OLD = "old"
_SHOW_IT_SAFE = "show what makes it safe (an exact total, an event, no buffer reused behind it), or keep the wait"
_SHOWN_TEXT = 80
_COLUMNS_KEPT = 64


def source_findings(
    found: Sequence[Found], shown: Callable[[str], str], read: Callable[[str], bytes | None]
) -> list[SourceFinding]:
    """One for each, in their order, which has to be that of the source. `read` gives a file's bytes, for columns."""
    names = fingerprints(Identity(code=f.code, path=f.path, function=f.function, text=f.text) for f in found)
    lines = lru_cache(_COLUMNS_KEPT)(lambda path: _lines(read(path)))
    named = cache(shown)
    return [_finding(each, name, named, lines) for each, name in zip(found, names, strict=True)]


def _finding(
    found: Found, name: Fingerprint, shown: Callable[[str], str], lines: Callable[[str], list[str]]
) -> SourceFinding:
    form = catalogue.form(found.form)
    file = shown(found.path)
    return SourceFinding(
        code=found.code,
        severity=severity(found.code, found.level, bool(found.hot)),
        message=f"{form.what}: `{_cut(found.text)}`{_circumstances(found)}",
        location=Location(file, found.line, found.end_line, found.function or None),
        cost_reason="read from source: nothing was run",
        fix=form.fix.text if form.fix else None,
        fingerprint=name.whole,
        path=printable(found.path),
        line=found.line,
        end_line=found.end_line,
        column=_column(lines(found.path), found.line, found.column),
        end_column=_column(lines(found.path), found.end_line, found.end_column),
        statement_line=found.statement_line,
        statement_end=found.statement_end,
        level=found.level,
        form=found.form,
        function=found.function,
        text=found.text,
        reason=found.reason,
        why=_why(found.why, found.path, shown),
        hot=bool(found.hot),
        hot_path=_hot_steps(found.hot, shown),
        conditional=found.conditional,
        loop=found.loop,
        times=found.times,
        fix_safety=form.fix.safety if form.fix else None,
        automatic=bool(form.fix and form.fix.automatic and found.facts),
        moved=name.moved,
    )


def idle_findings(idle: Sequence[Idle], shown: Callable[[str], str]) -> list[SourceFinding]:
    """Remarks that allow nothing."""
    names = fingerprints(Identity(code=IDLE_REMARK, path=i.path, function="", text=i.remark.text) for i in idle)
    rule = rules.get(IDLE_REMARK)
    return [
        SourceFinding(
            code=IDLE_REMARK,
            severity=rule.severity,
            message=each.message,
            location=Location(shown(each.path), each.remark.line, each.remark.line),
            fix="remove it, or write allow[CODE] with the reason",
            fingerprint=name.whole,
            path=printable(each.path),
            line=each.remark.line,
            end_line=each.remark.line,
            column=each.remark.column,
            end_column=each.remark.end_column,
            statement_line=each.remark.line,
            statement_end=each.remark.line,
            level=LEVELS[-1],
            text=each.remark.text,
            reason=each.message,
            moved=name.moved,
        )
        for each, name in zip(idle, names, strict=True)
    ]


def gone_finding(gone: Gone, shown: Callable[[str], str]) -> SourceFinding:
    """A finding that a change took away, at its place in the old text."""
    (finding,) = source_findings([gone.found], shown, lambda _: None)
    return msgspec.structs.replace(
        finding,
        severity=gone.severity,
        message=gone.message,
        status=gone.status,
        proof=gone.proof,
        side=OLD,
        now_file=shown(gone.path) if gone.line else "",
        now_line=gone.line,
        fix=_SHOW_IT_SAFE if gone.status == "removed" else None,
        fix_safety=None,
        automatic=False,
    )


def severity(code: str, level: str, hot: bool) -> Severity:
    """A wait matters where it is on a hot path and more than possible; hazards and our own rules by their rule."""
    if not code.startswith("DSV1"):
        return rules.get(code).severity
    return Severity.WARNING if hot and level != LEVELS[0] else Severity.NOTE


def worst_first(findings: Iterable[SourceFinding]) -> list[SourceFinding]:
    """By severity, hot or not, how sure; then by place."""
    return sorted(
        findings,
        key=lambda f: (
            -f.severity.rank, not f.hot, -LEVELS.index(f.level), f.path, f.line, f.column, f.code, f.fingerprint,
        ),
    )  # fmt: skip


def _why(why: Why | None, path: str, shown: Callable[[str], str]) -> list[SourceStep]:
    steps = why.chain() if why else []
    return [SourceStep(step.text, printable(step.path or path), step.line, shown(step.path or path)) for step in steps]


def _hot_steps(steps: Sequence[Step], shown: Callable[[str], str]) -> list[SourceStep]:
    return [SourceStep(step.function, printable(step.path), step.line, shown(step.path)) for step in steps]


def _circumstances(found: Found) -> str:
    said = []
    if found.times == 0:
        said.append("once an element")
    elif found.times > 1:
        said.append(f"{found.times} times a call")
    if found.loop:
        said.append("in a loop" if found.loop == 1 else f"in {found.loop} loops")
    if found.conditional:
        said.append("on some paths only")
    return f" ({', '.join(said)})" if said else ""


def _cut(text: str) -> str:
    # In a message the text stands between such marks.
    text = text.replace("`", "'")
    return text if len(text) <= _SHOWN_TEXT else text[: _SHOWN_TEXT - 3] + "..."


def _lines(data: bytes | None) -> list[str]:
    text = decode(data) if data is not None else None
    return text.split("\n") if text is not None else []


def _column(lines: list[str], line: int, offset: int) -> int:
    """From an offset in UTF-8 bytes, as `ast` counts, to a character counted from 1."""
    if not 1 <= line <= len(lines) or lines[line - 1].isascii():
        return offset + 1
    return len(lines[line - 1].encode("utf-8", "surrogatepass")[:offset].decode("utf-8", "ignore")) + 1
