"""Which format a target's name asks for."""

from __future__ import annotations

from pathlib import Path

from dsv4prof.errors import UsageError
from dsv4prof.trace.merging import Format
from dsv4prof.trace.write import JsonFormat

SUFFIXES = (".json", ".json.gz")


def format_of(target: Path) -> Format:
    """Raises UsageError for a name that says no format."""
    if target.name.endswith(SUFFIXES):
        return JsonFormat()
    names = ", ".join(SUFFIXES[:-1])
    raise UsageError(
        f"cannot write a trace to {str(target)!r}", hint=f"name a file ending in {names} or {SUFFIXES[-1]}"
    )
