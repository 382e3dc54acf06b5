"""`--show-settings`: every setting of a command with the place that decided it."""

from __future__ import annotations

from typing import Any

from dsv4prof.model.report import Column, Provenance, Report, Section, Verdict


def settings_report(values: dict[str, list[Any]]) -> Report:
    """`values` maps a name to [value, source], strongest source already chosen."""
    columns = [Column("setting", "setting"), Column("value", "value"), Column("source", "source")]
    rows = [
        {"setting": name, "value": "" if value is None else str(value), "source": source}
        for name, (value, source) in values.items()
    ]
    return Report(
        kind="settings",
        provenance=Provenance(command="settings"),
        sections=[Section(key="settings", title="Settings", columns=columns, rows=rows)],
        verdict=Verdict(exit_code=0, summary=f"{len(rows)} settings"),
        data={"settings": {name: {"value": value, "source": source} for name, (value, source) in values.items()}},
    )
