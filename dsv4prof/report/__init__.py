"""Report -> one of the formats. A renderer lays out what a report holds; it never computes."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from dsv4prof.errors import UsageError
from dsv4prof.model.report import Report

# Every format but text has a module of its name with one function, `render_<name>`.
FORMATS = ("text", "json", "concise", "jsonl", "sarif", "github", "markdown", "junit")


def render(report: Report, fmt: str = "text", *, color: bool = False) -> str:
    """The report in one of FORMATS, ending in a newline. `color` matters to text alone.

    Raises UsageError for an unknown format.
    """
    if fmt not in FORMATS:
        raise UsageError(f"there is no format {fmt!r}", hint=f"known formats: {', '.join(FORMATS)}")
    if fmt == "text":
        from dsv4prof.report.text import render_text

        return render_text(report, color=color)
    renderer: Callable[[Report], str] = getattr(import_module(f"{__name__}.{fmt}"), f"render_{fmt}")
    return renderer(report)


__all__ = ["FORMATS", "render"]
