"""Settings with the place that decided each: of a command (`--show-settings`) and of a recorded session."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dsv4prof.model.report import Cell, Column, Provenance, Report, Section, Verdict


def settings_report(values: dict[str, list[Any]]) -> Report:
    """`values` maps a name to [value, source], strongest source already chosen."""
    section = settings_section(values)
    return Report(
        kind="settings",
        provenance=Provenance(command="settings"),
        sections=[section],
        verdict=Verdict(exit_code=0, summary=f"{len(section.rows)} settings"),
        data={"settings": {name: {"value": value, "source": source} for name, (value, source) in values.items()}},
    )


def settings_section(values: Mapping[str, Any]) -> Section:
    """The same as a table. A manifest from elsewhere may hold anything in place of a pair: it is shown as it is."""
    rows: list[dict[str, Cell]] = []
    for name, entry in values.items():
        value, source = entry if isinstance(entry, list) and len(entry) == 2 else (entry, None)
        rows.append({"setting": name, "value": _plain(value), "source": _plain(source)})
    columns = [Column("setting", "setting"), Column("value", "value"), Column("source", "source")]
    return Section(key="settings", title="Settings", columns=columns, rows=rows)


def _plain(value: object) -> str | None:
    return None if value is None or value == "" else str(value)
