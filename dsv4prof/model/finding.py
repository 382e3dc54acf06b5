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


class SourceStep(msgspec.Struct, frozen=True):
    """One step of a chain through source: a function on the way from a hot root, or a step of an inference.

    `path` is relative to the audited root, `file` as `Location.file`.
    """

    text: str
    path: str = ""
    line: int = 0
    file: str = ""


class SourceEdit(msgspec.Struct, frozen=True):
    """Text in place of a range of source; lines and columns count from 1, the end column is the one after."""

    path: str
    line: int
    column: int
    end_line: int
    end_column: int
    text: str


class SourceFinding(Finding, frozen=True, kw_only=True):
    """A finding of the audit of source. In JSON its fields stand beside those of every finding.

    `path` is relative to the audited root, `location.file` to the working directory where the file lies below it.
    `line`..`end_line` and the 1-based columns (of characters; `end_column` is the one after) span the expression,
    `statement_line`..`statement_end` the statement, of a compound one its header. `function` is qualified in its
    module. `hot_path` is the way from a hot root, outermost first; `why` the inference, first step first. `times` is
    how often one call waits (0: once an element), `loop` how many loops of the function enclose it. `moved` is the part
    of the fingerprint that does not hang on the file. `status` compares with a baseline or a revision: new, unchanged,
    moved, fixed, gone, removed; "" where nothing was compared. `proof` says what a removal hangs on. What a change took
    away has `side` "old": its place is that of the text before, and `now_file` and `now_line` (0: the file is gone) are
    where it stood in terms of the text as it is. `ran` says what given runs did there; "" where none were given.
    """

    path: str
    line: int
    end_line: int
    column: int = 1
    end_column: int = 1
    statement_line: int = 0
    statement_end: int = 0
    level: str
    form: str = ""
    function: str = ""
    text: str = ""
    reason: str = ""
    why: list[SourceStep] = []
    hot: bool = False
    hot_path: list[SourceStep] = []
    conditional: bool = False
    loop: int = 0
    times: int = 1
    fix_safety: str | None = None
    automatic: bool = False
    edits: list[SourceEdit] = []
    moved: str = ""
    status: str = ""
    proof: str = ""
    ran: str = ""
    side: str = ""
    now_file: str = ""
    now_line: int = 0
