"""A line of JSON for each finding, for streams: the fields that a finding has in `--format json`."""

from __future__ import annotations

import msgspec

from dsv4prof.model.report import Report


def render_jsonl(report: Report) -> str:
    """One object a line in the order of the report; nothing at all where nothing was found."""
    return "".join(msgspec.json.encode(finding).decode() + "\n" for finding in report.findings)
