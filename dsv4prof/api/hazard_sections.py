"""Hazards and explanations as tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from dsv4prof.api.hazard_source import SourceNotes
from dsv4prof.model.report import Cell, Column, Section
from dsv4prof.sync.runtime.hazards.explain import Explanation
from dsv4prof.sync.runtime.hazards.findings import place
from dsv4prof.sync.runtime.hazards.hazard import Hazard, Side

_COLUMNS = [
    Column("code", "rule"),
    Column("seen", "seen", "count"),
    Column("first", "first"),
    Column("second", "then"),
    Column("memory", "memory"),
    Column("bytes", "size", "bytes"),
]
_CALLERS = 3


def hazard_section(hazards: Sequence[Hazard], title: str = "hazards", key: str = "hazards") -> Section:
    """Both sides of each, with the memory between them."""
    return Section(key=key, title=title, columns=_COLUMNS, rows=[_row(hazard) for hazard in hazards])


def _row(hazard: Hazard) -> dict[str, Cell]:
    memory = hazard.memory
    return {
        "code": hazard.code,
        "seen": hazard.seen,
        "first": _side(hazard.first) if hazard.first else None,
        "second": _side(hazard.second),
        "memory": memory.place if memory else None,
        "bytes": memory.high - memory.low if memory else None,
    }


def _side(side: Side) -> str:
    where = "host" if side.stream is None else "default stream" if side.stream == 0 else f"stream {side.stream:#x}"
    step = "" if side.step is None else f", step {side.step}"
    return f"{place(side)} ({where}{step})"


def explanation_sections(found: Explanation, notes: SourceNotes) -> list[Section]:
    sections = []
    if found.waits:
        sections.append(
            Section(
                key="waits",
                title="the host waited there",
                columns=[Column("op", "call"), Column("times", "times", "count"), Column("where", "called from")],
                rows=_waits(found),
            )
        )
    if found.protects:
        sections.append(hazard_section(found.protects, "without it", "protects"))
    if found.own:
        sections.append(hazard_section(found.own, "what it brings is read at once", "own"))
    if found.exact or found.padded:
        sections.append(_totals(found))
    if found.instead:
        rows: list[dict[str, Cell]] = [{"what": line} for line in found.instead]
        sections.append(
            Section(key="instead", title="what would do instead", columns=[Column("what", "what")], rows=rows)
        )
    if notes.near:
        columns = [Column("where", "where"), Column("what", "what")]
        near: list[dict[str, Cell]] = [
            {"where": f"{each.path}:{each.line}", "what": f"{each.what} in {each.function}"} for each in notes.near
        ]
        sections.append(
            Section(key="near", title="in the source round it, exercised or not", columns=columns, rows=near)
        )
    return sections


def _waits(found: Explanation) -> list[dict[str, Cell]]:
    """Of the nearest callers; those further out make no difference here."""
    times: Counter[tuple[str, str]] = Counter()
    for wait in found.waits:
        times[wait.op, " < ".join(f"{frame.function}:{frame.line}" for frame in wait.stack[:_CALLERS])] += wait.times
    return [{"op": op, "times": count, "where": where} for (op, where), count in times.most_common()]


def _totals(found: Explanation) -> Section:
    candidates = found.exact or found.padded
    return Section(
        key="totals",
        title="host integers near the expansion, against its size",
        columns=[Column("name", "integer"), Column("equal", "equal", "count"), Column("calls", "calls", "count")],
        rows=[{"name": each.name, "equal": each.equal, "calls": each.calls} for each in candidates[:8]],
        note="equal in every call is no proof of the next one: dsv4prof audit code proves totals from the source",
    )
