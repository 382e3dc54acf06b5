"""The truth harness as reports: measure which calls wait here, compare two measurements, list what is known."""

from __future__ import annotations

import re
from collections.abc import Callable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import msgspec

from dsv4prof import __version__
from dsv4prof.api.outputs import require_writable
from dsv4prof.api.words import plural
from dsv4prof.errors import InterruptedRunError, OutputError, UsageError
from dsv4prof.model.report import Cell, Column, Provenance, Report, Section, Verdict
from dsv4prof.sync import measured
from dsv4prof.sync.measured import CaseFile, Meta, Truth
from dsv4prof.sync.measured.comparing import Drift, compare, contradictions, version_of

SHIPPED = "shipped"
_WAITS = {True: "waits", False: "does not", None: "failed"}


def truth_measure(
    *,
    cases: Path | None = None,
    output: Path | None = None,
    only: str | None = None,
    against: str | None = SHIPPED,
    fail_on_drift: bool = False,
    progress: Callable[[str], None] = lambda _: None,
) -> Report:
    """Measure on the device at hand, write the rows, and say how they differ from `against`.

    `against` is a file, "shipped" (the measurements of this package that fit best) or None. Raises UsageError without
    a device or a case, InputError for files, OutputError, and InterruptedRunError after saving what was measured.
    """
    from dsv4prof.sync.runtime.truth.campaign import InterruptedMeasuringError, measure_all
    from dsv4prof.sync.runtime.truth.torch_probe import require_device

    wanted = _chosen(measured.cases(cases), only)
    other = measured.read(Path(against)) if against not in (None, SHIPPED) else None
    require_device()
    if output is not None:
        require_writable(output, option="-o")
    try:
        truth = measure_all(wanted, say=progress)
    except InterruptedMeasuringError as stopped:
        path = _written(output, stopped.truth)
        raise InterruptedRunError(f"interrupted; {plural(len(stopped.truth.rows), 'case')} written to {path}") from None
    path = _written(output, truth)
    other = other or (nearest(truth.meta) if against == SHIPPED else None)
    return _measure_report(path, truth, other, fail_on_drift=fail_on_drift)


def truth_compare(old: str, new: str, *, fail_on_drift: bool = False) -> Report:
    """How `new` differs from `old`; each is a file or "shipped". Raises InputError."""
    before, after = _pair(old, new)
    drift = compare(before, after)
    sections, notes = _drift_sections(drift, before.meta, after.meta)
    sentence, status = _drift_sentence(drift, before.meta), _status(drift, fail_on_drift)
    return Report(
        kind="truth-compare",
        provenance=_provenance("truth compare", [old, new]),
        sections=sections,
        notes=[*([] if status else [sentence]), *_raising(before, after), *notes],
        verdict=Verdict(exit_code=status, summary=sentence),
        data={"old": _plain(before.meta), "new": _plain(after.meta), "drift": _plain(drift)},
    )


def truth_list(only: str | None = None) -> Report:
    """The shipped measurements; with `only`, the cases whose id fits that pattern, and what each file says of them."""
    files = {path.stem: measured.read(path) for path in measured.shipped()}
    cases = _chosen(measured.cases(), only).cases
    rows: list[dict[str, Cell]] = [
        {
            "name": name,
            "torch": truth.meta.torch,
            "device": truth.meta.device,
            "measured": truth.meta.measured,
            "cases": len(truth.rows),
            "waiting": sum(row.syncs is True for row in truth.rows),
        }
        for name, truth in files.items()
    ]
    columns = [Column(key, key) for key in ("name", "torch", "device", "measured")]
    columns += [Column("cases", "cases", "count"), Column("waiting", "waiting", "count")]
    sections = [Section(key="files", title="Shipped measurements", columns=columns, rows=rows)]
    if only is not None:
        sections.append(_case_section(cases, files))
    return Report(
        kind="truth-list",
        provenance=_provenance("truth list", []),
        sections=sections,
        verdict=Verdict(exit_code=0, summary=plural(len(cases), "case")),
        notes=[] if only is not None else [f"{plural(len(cases), 'case')} to measure; --only '*' lists them"],
        next_command="dsv4prof truth measure",
        data={
            "files": {name: _plain(truth.meta) for name, truth in files.items()},
            "cases": [{**_plain(c), "syncs": _verdicts(c.id, files)} for c in cases],
        },
    )


def nearest(meta: Meta) -> Truth:
    """The shipped measurement that fits best: of the same vendor, and of the torch version next to this one."""
    known = [measured.read(path) for path in measured.shipped()]
    return min(known, key=lambda truth: _distance(truth.meta, meta))


def _distance(known: Meta, meta: Meta) -> tuple[bool, int]:
    (left, right) = ([*version_of(one.torch), 0, 0] for one in (known, meta))
    return known.vendor != meta.vendor, abs(left[0] - right[0]) * 1000 + abs(left[1] - right[1])


def _chosen(file: CaseFile, only: str | None) -> CaseFile:
    if only is None:
        return file
    cases = [case for case in file.cases if fnmatchcase(case.id, only)]
    if not cases:
        raise UsageError(f"no case is called {only!r}", hint="dsv4prof truth list --only '*' lists them")
    return CaseFile(file.meta, cases)


def _pair(old: str, new: str) -> tuple[Truth, Truth]:
    """Two files; "shipped" is the shipped measurement that fits the other one best."""
    if old == new == SHIPPED:
        raise UsageError("there is nothing to compare", hint="name a file that dsv4prof truth measure wrote")
    if old == SHIPPED:
        after = measured.read(Path(new))
        return nearest(after.meta), after
    before = measured.read(Path(old))
    return before, nearest(before.meta) if new == SHIPPED else measured.read(Path(new))


def _written(output: Path | None, truth: Truth) -> Path:
    path = output or Path(_file_name(truth.meta))
    try:
        measured.write(path, truth)
    except OSError as error:
        raise OutputError(
            f"cannot write {path}: {error.strerror or error}", hint="name another file with -o"
        ) from error
    return path


def _file_name(meta: Meta) -> str:
    device = re.sub(r"[^a-z0-9]+", "-", meta.device.lower()).strip("-") or "device"
    return f"truth.{device}.torch{'.'.join(map(str, version_of(meta.torch)))}.jsonl"


def _measure_report(path: Path, truth: Truth, other: Truth | None, *, fail_on_drift: bool) -> Report:
    failed = [row for row in truth.rows if row.error]
    drift = compare(other, truth) if other is not None else None
    sections, notes = _drift_sections(drift, other.meta, truth.meta) if drift and other else ([], [])
    wrong = contradictions(truth)
    if wrong:
        sections.append(_contradiction_section(wrong))
    known = {row.id for row in other.rows if row.error} if other is not None else set()
    surprising = [{"case": row.id, "error": row.error} for row in failed if row.id not in known]
    if surprising:
        sections.append(_table("failed", "Cases that failed", surprising))
    if len(failed) > len(surprising):
        notes.append(f"{plural(len(failed) - len(surprising), 'case')} failed as they did there: they raise an error")
    waiting = sum(row.syncs is True for row in truth.rows)
    summary = f"{plural(len(truth.rows), 'case')} on {truth.meta.device} with torch {truth.meta.torch}: {waiting} wait"
    if drift and other:
        summary += "; " + _drift_sentence(drift, other.meta)
    return Report(
        kind="truth-measure",
        provenance=_provenance("truth measure", []),
        sections=sections,
        notes=[summary, f"written to {path}", *notes],
        verdict=Verdict(exit_code=_status(drift, fail_on_drift) if drift else 0, summary=summary),
        next_command=f"dsv4prof truth compare shipped {path}",
        data={
            "path": str(path),
            "meta": _plain(truth.meta),
            "drift": _plain(drift) if drift else None,
            "contradictions": [_plain(one) for one in wrong],
            "failed": {row.id: row.error for row in failed},
        },
    )


def _raising(before: Truth, after: Truth) -> list[str]:
    """Cases of both files of which nothing can be said, since one raised an error or gave no verdict."""
    known = before.by_id()
    left = [row.id for row in after.rows if row.id in known and (row.syncs is None or known[row.id].syncs is None)]
    if not left:
        return []
    shown = ", ".join(left[:8]) + (", ..." if len(left) > 8 else "")
    return [f"not compared: {plural(len(left), 'case')} that raised an error in a file: {shown}"]


def _verdicts(case: str, files: dict[str, Truth]) -> dict[str, bool | None]:
    """By shipped file; null where the case failed. A file that has not measured it is left out."""
    return {name: rows[case].syncs for name, rows in ((n, t.by_id()) for n, t in files.items()) if case in rows}


def _status(drift: Drift, fail: bool) -> int:
    return 1 if fail and any(not change.explained for change in drift.changed) else 0


def _drift_sentence(drift: Drift, old: Meta) -> str:
    base = f"{old.device}, torch {old.torch}"
    if not drift.changed:
        return f"{plural(drift.agreeing, 'case')} agree with {base}"
    known = sum(change.explained for change in drift.changed)
    tail = f" ({known} as the catalogue says)" if known else ""
    return f"{len(drift.changed)} of {plural(drift.agreeing + len(drift.changed), 'case')} differ from {base}{tail}"


def _drift_sections(drift: Drift, old: Meta, new: Meta) -> tuple[list[Section], list[str]]:
    rows = [
        {
            "case": change.id,
            "old": _WAITS[change.before],
            "new": _WAITS[change.after],
            "forms": ", ".join(change.forms) or None,
            "known": "yes" if change.explained else "no",
            "call": change.call.replace("\n", " ; "),
        }
        for change in drift.changed
    ]
    title = f"Differs: {old.vendor} torch {old.torch} -> {new.vendor} torch {new.torch}"
    sections = [_table("changed", title, rows)] if rows else []
    notes = []
    for ids, what in (
        (drift.warned, "wait in both files, and warn in one alone"),
        (drift.new, "are in the new file alone"),
        (drift.gone, "are in the old file alone"),
    ):
        if ids:
            shown = ", ".join(ids[:8]) + (", ..." if len(ids) > 8 else "")
            notes.append(f"{plural(len(ids), 'case')} {what}: {shown}")
    return sections, notes


def _contradiction_section(wrong: list[Any]) -> Section:
    rows = [
        {"form": one.form, "case": one.case, "catalogue": _WAITS[one.expected], "here": _WAITS[one.measured]}
        for one in wrong
    ]
    return _table("contradictions", "The catalogue says otherwise", rows)


def _case_section(cases: list[measured.Case], files: dict[str, Truth]) -> Section:
    known = {name: truth.by_id() for name, truth in files.items()}
    rows: list[dict[str, Cell]] = [
        {
            "case": case.id,
            **{name: _WAITS[rows[case.id].syncs] if case.id in rows else None for name, rows in known.items()},
            "call": case.call.replace("\n", " ; "),
        }
        for case in cases
    ]
    return _table("cases", "Cases", rows)


def _table(key: str, title: str, rows: list[dict[str, Any]]) -> Section:
    return Section(key=key, title=title, columns=[Column(name, name) for name in rows[0]], rows=rows)


def _provenance(command: str, inputs: list[str]) -> Provenance:
    return Provenance(command=command, inputs=inputs, versions={"dsv4prof": __version__})


def _plain(value: Any) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(value)
    return plain
