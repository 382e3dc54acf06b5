"""The report for machines: schema dsv4prof.report/1, times as integer nanoseconds, sizes as integer bytes."""

from __future__ import annotations

import msgspec

from dsv4prof.model.report import Report


def render_json(report: Report) -> str:
    """One JSON object. The keys of `data` stand at the top level, beside the report's own, which win."""
    fields = msgspec.to_builtins(report)
    data = fields.pop("data")
    return msgspec.json.format(msgspec.json.encode({**data, **fields}), indent=2).decode() + "\n"
