"""Plain columns: aligned, never cut, numbers to the right."""

from __future__ import annotations

from collections.abc import Sequence

GAP = "  "


def aligned(rows: Sequence[Sequence[str]], right: Sequence[bool]) -> list[str]:
    """Lines of equal columns; `right` says which columns hold numbers. Trailing blanks are left off."""
    widths = [max((len(row[place]) for row in rows), default=0) for place in range(len(right))]
    return [
        GAP.join(
            text.rjust(width) if to_right else text.ljust(width)
            for text, width, to_right in zip(row, widths, right, strict=True)
        ).rstrip()
        for row in rows
    ]
