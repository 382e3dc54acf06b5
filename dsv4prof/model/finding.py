"""A host sync, hazard or fault, known from source, from a run or from a trace: one type serves all three."""

from __future__ import annotations

from enum import Enum
from typing import Any

import msgspec


class Severity(str, Enum):
    """How much a finding matters. `--fail-on` compares by this order."""

    NOTE = "note"
    WARNING = "warning"
    ERROR = "error"

    @property
    def rank(self) -> int:
        return ("note", "warning", "error").index(self.value)


class Location(msgspec.Struct, frozen=True):
    """A place in source. `function` is what a trace can name; the line of the call needs a run or a parse."""

    file: str
    line: int | None = None
    end_line: int | None = None
    function: str | None = None

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{self.function}, {place}" if self.function else place


class TraceSpan(msgspec.Struct, frozen=True):
    """A slice in a trace, so that a viewer can be opened on it."""

    rank: int
    start_ns: int
    dur_ns: int
    name: str
    pid: int | None = None
    tid: int | None = None


class Finding(msgspec.Struct, frozen=True):
    """One thing that the user should know.

    `cost_ns` is None when nothing was measured (a CPU run measures no stall); `cost_reason` then says why.
    `evidence` holds plain numbers and words (counts per step, operator chain, range), never layout.
    """

    code: str
    severity: Severity
    message: str
    location: Location | None = None
    span: TraceSpan | None = None
    evidence: dict[str, Any] = {}
    cost_ns: int | None = None
    cost_reason: str | None = None
    fix: str | None = None
    fingerprint: str = ""
