"""Report -> text or JSON. A renderer lays out what a report holds; it never computes."""

from __future__ import annotations

from dsv4prof.errors import UsageError
from dsv4prof.model.report import Report

FORMATS = ("text", "json")


def render(report: Report, fmt: str = "text", *, color: bool = False) -> str:
    """The report in one of FORMATS, ending in a newline. `color` matters to text alone.

    Raises UsageError for an unknown format.
    """
    if fmt == "text":
        from dsv4prof.report.text import render_text

        return render_text(report, color=color)
    if fmt == "json":
        from dsv4prof.report.json import render_json

        return render_json(report)
    raise UsageError(f"there is no format {fmt!r}", hint=f"known formats: {', '.join(FORMATS)}")


__all__ = ["FORMATS", "render"]
