"""The result of a check as text."""

from __future__ import annotations

from dsv4_engine.check.ledger import Ledger, Row, Status

_HEADER = ("quantity", "compared", "worst", "at", "bound", "result")


def render(ledger: Ledger) -> str:
    """A table with one line a quantity, then accept lengths, then the verdict."""
    cells = [_HEADER, *map(_cells, ledger.rows.values())]
    widths = [max(len(row[column]) for row in cells) for column in range(len(_HEADER))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]
    return "\n".join([*lines, "", *ledger.lines, _verdict(ledger)])


def _cells(row: Row) -> tuple[str, ...]:
    result = row.status.value + (f" ({row.note})" if row.note else "")
    if row.status is Status.ABSENT:
        return (row.quantity, "-", "-", "-", "-", result)
    if row.bound is None:
        worst, bound = f"{row.worst:.0f} differ" if row.worst else "equal", "exact"
    else:
        worst, bound = f"{row.worst:.2e}", _bound(row.bound)
    if not row.compared:
        worst = "-"
    return (row.quantity, str(row.compared), worst, row.where or "-", bound, result)


def _bound(bound: float) -> str:
    """One digit where that says it all."""
    short = f"{bound:.0e}"
    return short if float(short) == bound else f"{bound:.1e}"


def _verdict(ledger: Ledger) -> str:
    wrong = [row.quantity for row in ledger.rows.values() if row.status is Status.MISMATCH]
    absent = [row.quantity for row in ledger.rows.values() if row.status is Status.ABSENT]
    if wrong:
        return f"MISMATCH in {', '.join(wrong)}"
    if not ledger.ok:
        return "MISMATCH: nothing could be compared"
    return "all equal within their bounds" + (f"; absent: {', '.join(absent)}" if absent else "")
