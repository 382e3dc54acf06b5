"""What was compared with what, and how it went: one row a quantity, the worst case kept, nothing passed in silence."""

# dsv4prof: allow-file[DSV103] compares results offline, never in a serving step
from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import Enum

import torch


class Status(str, Enum):
    """ABSENT: an optional part of the set is not there, so nothing was compared; it does not count as a mismatch."""

    OK = "ok"
    MISMATCH = "MISMATCH"
    ABSENT = "absent"


@dataclass(kw_only=True)
class Row:
    """One quantity over all places (prompts or layers) where it occurs.

    worst: largest absolute difference, or for exact quantities the number of differing entries. bound: None = exact.
    note: what went wrong or is absent, where it was first seen.
    """

    quantity: str
    bound: float | None
    compared: int = 0
    worst: float = 0.0
    where: str = ""
    status: Status = Status.OK
    note: str = ""


@dataclass
class Ledger:
    """Rows in the order in which quantities first came up, and lines to print below them."""

    rows: dict[str, Row] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether something was compared, and all of it agrees."""
        statuses = {row.status for row in self.rows.values()}
        return Status.MISMATCH not in statuses and Status.OK in statuses

    def close(
        self, quantity: str, where: str, actual: torch.Tensor, expected: torch.Tensor | None, bound: float
    ) -> None:
        """Compare numbers within `bound`; NaN on either side is infinitely wrong, None is a missing key."""
        row = self._row(quantity, bound)
        if not self._comparable(row, where, actual, expected):
            return
        assert expected is not None
        difference = (actual.double().cpu() - expected.double()).abs().nan_to_num(nan=math.inf)
        self._record(row, where, float(difference.max()) if difference.numel() else 0.0)

    def exact(
        self, quantity: str, where: str, actual: torch.Tensor, expected: torch.Tensor | None, *, note: str = ""
    ) -> None:
        """Compare integers entry by entry; None is a missing key. note: what to say if they differ."""
        row = self._row(quantity, None)
        if not self._comparable(row, where, actual, expected):
            return
        assert expected is not None
        self._record(row, where, float((actual.cpu() != expected).sum()), note)

    def absent(self, quantity: str, why: str) -> None:
        """Say that an optional quantity could not be compared."""
        self.rows[quantity] = Row(quantity=quantity, bound=None, status=Status.ABSENT, note=why)

    def mismatch(self, quantity: str, where: str, note: str, *, bound: float | None = None) -> None:
        """Say that a quantity is wrong in a way that no difference expresses."""
        self._fail(self._row(quantity, bound), where, note)

    def _row(self, quantity: str, bound: float | None) -> Row:
        return self.rows.setdefault(quantity, Row(quantity=quantity, bound=bound))

    def _comparable(self, row: Row, where: str, actual: torch.Tensor, expected: torch.Tensor | None) -> bool:
        if expected is None:
            self._fail(row, where, "missing from the set")
        elif actual.shape != expected.shape:
            self._fail(row, where, f"shape {list(actual.shape)}, the set has {list(expected.shape)}")
        else:
            return True
        return False

    def _record(self, row: Row, where: str, difference: float, note: str = "") -> None:
        row.compared += 1
        if difference > row.worst or not row.where:
            row.worst, row.where = difference, where
        if difference > (row.bound or 0.0):
            self._fail(row, where, note)

    def _fail(self, row: Row, where: str, note: str) -> None:
        if note and (not row.note or row.status is Status.ABSENT):
            row.note = f"{where}: {note}"
        row.status = Status.MISMATCH
