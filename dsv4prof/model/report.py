"""What a command has to say, before any format: renderers take this and return text, and compute nothing."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from dsv4prof.model.finding import Finding

SCHEMA = "dsv4prof.report/1"

Cell = str | int | float | bool | None
Unit = Literal["ns", "bytes", "count", "ratio", "percent", "tokens", "tokens/s", "text", "ppm"]


class Column(msgspec.Struct, frozen=True):
    """A column's key, heading and unit; cells are integers in that unit, formatted only by a renderer."""

    key: str
    title: str
    unit: Unit = "text"


class Section(msgspec.Struct, frozen=True):
    """A titled table with an optional sentence before and after it."""

    key: str
    title: str
    columns: list[Column] = []
    rows: list[dict[str, Cell]] = []
    lead: str | None = None
    note: str | None = None


class Metric(msgspec.Struct, frozen=True):
    """One named number. `reason` says why `value` is None, or how it was measured."""

    key: str
    title: str
    value: Cell
    unit: Unit = "count"
    reason: str | None = None


class Check(msgspec.Struct, frozen=True):
    """Something that was verified and how it came out, in one sentence; `ok` None means it could not be checked."""

    key: str
    ok: bool | None
    message: str


class Provenance(msgspec.Struct, frozen=True):
    """Which command on which inputs with which versions made this report."""

    command: str
    inputs: list[str] = []
    session: str | None = None
    versions: dict[str, str] = {}
    settings: dict[str, Any] = {}


class Verdict(msgspec.Struct, frozen=True):
    """The exit status and the sentence that explains it."""

    exit_code: int
    summary: str


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a command found.

    `data` carries command-specific facts; machine formats put its keys at the top level, beside those of this type.
    """

    schema: str = SCHEMA
    kind: str
    provenance: Provenance
    checks: list[Check] = []
    sections: list[Section] = []
    metrics: list[Metric] = []
    findings: list[Finding] = []
    notes: list[str] = []
    verdict: Verdict
    next_command: str | None = None
    data: dict[str, Any] = {}
