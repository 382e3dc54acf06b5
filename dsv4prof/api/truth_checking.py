"""Measured cases under the detector: what it missed, and what it said that is not so."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import msgspec

from dsv4prof import __version__
from dsv4prof.api.words import plural
from dsv4prof.errors import InputError, UsageError
from dsv4prof.model.report import Cell, Column, Provenance, Report, Section, Verdict
from dsv4prof.sync import measured
from dsv4prof.sync.measured import Case, CaseFile
from dsv4prof.sync.runtime.judging.agreement import Agreement, by_layer, of_union
from dsv4prof.sync.runtime.judging.campaign import Judged, child_command, judge_all
from dsv4prof.sync.runtime.judging.cases import PreludeError
from dsv4prof.sync.runtime.judging.detector import Where
from dsv4prof.sync.runtime.judging.verdicts import Verdict as CaseVerdict

_INTERRUPTED = 130


def truth_check(
    file: Path,
    *,
    gpu: bool = True,
    vendor: str = "cuda",
    only: str | None = None,
    torch_version: str | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Report:
    """Run the cases of a file under the detector and compare its verdicts with what the file says was measured.

    gpu: with the layers for a device; else on shadow tensors of `vendor`, judged as `torch_version` (default: the
    installed one) would. Only id, prelude, setup, call, after and needs decide a verdict. A file of cases gives
    verdicts alone. Ctrl-C keeps what was judged, with exit status 130. Raises InputError for the file, UsageError for
    an unknown vendor, without torch, without a device where one is asked for, or without a case.
    """
    if vendor not in ("cuda", "hip"):
        raise UsageError(f"there is no shadow of {vendor!r}", hint="say cuda or hip")
    wanted = _chosen(measured.cases(file), only)
    known = _measured(file)
    _require_torch()
    if gpu:
        from dsv4prof.sync.runtime.truth.torch_probe import require_device

        require_device()
    where: Where = "gpu" if gpu else "shadow"
    judged = judge_all(wanted, child_command(where, vendor, torch_version), say=progress)
    _refuse_prelude(file, judged.verdicts)
    return _report(file, wanted, known, judged)


def _refuse_prelude(file: Path, verdicts: Sequence[CaseVerdict]) -> None:
    """Where it fails for all, no case was judged at all."""
    failing = f"{PreludeError.__name__}: "
    if verdicts and all(one.error.startswith(failing) for one in verdicts):
        why = verdicts[0].error.removeprefix(failing)
        raise InputError(f"the prelude of {file.name} fails here: {why}", hint="it may use torch, np, F, dist and dev")


def _measured(file: Path) -> dict[str, bool]:
    """Ids of the cases with a verdict of a device; none in a file of cases."""
    if measured.cases(file).meta.format == measured.CASES_FORMAT:
        return {}
    return {row.id: row.syncs for row in measured.read(file).rows if row.syncs is not None}


def _chosen(file: CaseFile, only: str | None) -> CaseFile:
    cases = [case for case in file.cases if only is None or fnmatchcase(case.id, only)]
    if not cases:
        what = "no case" if only is None else f"no case that is called {only!r}"
        raise UsageError(f"the file holds {what}", hint="dsv4prof truth list --only '*' lists the shipped ones")
    return CaseFile(file.meta, cases)


def _require_torch() -> None:
    from importlib.util import find_spec

    if find_spec("torch") is None:
        raise UsageError("checking runs the cases, and torch is not installed", hint="install a torch, of any build")


def _report(file: Path, wanted: CaseFile, known: Mapping[str, bool], judged: Judged) -> Report:
    verdicts = judged.verdicts
    union, layers = of_union(verdicts, known), by_layer(verdicts, known)
    calls = {case.id: case for case in wanted.cases}
    failed = {one.id: one.error for one in verdicts if one.error}
    summary = _sentence(union, verdicts)
    notes = []
    if judged.interrupted:
        notes.append(f"interrupted after {len(verdicts)} of {plural(len(wanted.cases), 'case')}; those count")
    sections = [_layer_section(union, layers)] if union.compared else []
    sections += _disagreements(union, layers, verdicts, calls)
    odd = {id: error for id, error in failed.items() if id in known or not known}
    if odd:
        rows: list[dict[str, Cell]] = [{"case": id, "error": error} for id, error in odd.items()]
        sections.append(_table("failed", "Cases that raised; what was seen before counts", rows))
    return Report(
        kind="truth-check",
        provenance=Provenance(command="truth check", inputs=[str(file)], versions={"dsv4prof": __version__}),
        sections=sections,
        notes=[summary, *notes],
        verdict=Verdict(exit_code=_INTERRUPTED if judged.interrupted else 0, summary=summary),
        data={
            **_counts(union),
            "union": _counts(union),
            "layers": {name: _counts(one) for name, one in layers.items()},
            "verdicts": {one.id: _without_id(one) for one in verdicts},
            "failed": failed,
            "interrupted": judged.interrupted,
        },
    )


def _sentence(union: Agreement, verdicts: Sequence[CaseVerdict]) -> str:
    waiting = sum(one.syncs for one in verdicts)
    said = f"{plural(len(verdicts), 'case')} judged, {waiting} wait"
    if union.agreement is None:
        return f"{said}; nothing was measured, so there is nothing to compare"
    right = union.compared - len(union.missed) - len(union.false)
    missed, false = len(union.missed), len(union.false)
    share = f"{100 * union.agreement:.1f} %"
    return f"{said}; {right} of {union.compared} as measured ({share}): {missed} missed, {false} false"


def _counts(one: Agreement) -> dict[str, Any]:
    counts: dict[str, Any] = msgspec.to_builtins(one)
    return {**counts, "missed": list(one.missed), "false": list(one.false)}


def _without_id(one: CaseVerdict) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(one)
    del plain["id"]
    return plain


def _layer_section(union: Agreement, layers: Mapping[str, Agreement]) -> Section:
    rows: list[dict[str, Cell]] = [
        {
            "layer": name,
            "agreement": f"{100 * (one.agreement or 0):.1f} %",
            "missed": len(one.missed),
            "false": len(one.false),
        }
        for name, one in {"union": union, **layers}.items()
    ]
    columns = [Column("layer", "layer"), Column("agreement", "agreement")]
    columns += [Column("missed", "missed", "count"), Column("false", "false", "count")]
    return Section(key="layers", title="By layer", columns=columns, rows=rows)


def _disagreements(
    union: Agreement, layers: Mapping[str, Agreement], verdicts: Sequence[CaseVerdict], calls: Mapping[str, Case]
) -> list[Section]:
    """What the union got wrong, and by whom a case was missed that another layer saw."""
    said = {one.id: one for one in verdicts}
    sections = []
    for key, title, ids in (
        ("missed", "Missed: they wait, and no layer said so", union.missed),
        ("false", "False: they do not wait", union.false),
    ):
        rows: list[dict[str, Cell]] = [
            {
                "case": id,
                "call": calls[id].call.replace("\n", " ; "),
                "said": said[id].kind or "nothing",
                "reason": said[id].error or said[id].reason,
            }
            for id in ids
        ]
        if rows:
            sections.append(_table(key, title, rows))
    partly: list[dict[str, Cell]] = [
        {"layer": name, "missed": ", ".join(one.missed) or "-", "false": ", ".join(one.false) or "-"}
        for name, one in layers.items()
        if len(layers) > 1 and (one.missed or one.false)
    ]
    if partly:
        sections.append(_table("by_layer", "Missed and false by layer", partly))
    return sections


def _table(key: str, title: str, rows: list[dict[str, Cell]]) -> Section:
    return Section(key=key, title=title, columns=[Column(name, name) for name in rows[0]], rows=rows)
