"""What one analysis has to say: parts of a report, which only api puts together."""

from __future__ import annotations

import msgspec

from dsv4prof.model.finding import Finding
from dsv4prof.model.report import Metric, Section


class Analysis(msgspec.Struct, frozen=True):
    """Tables, numbers, findings and sentences; any of them may be empty."""

    sections: list[Section] = []
    metrics: list[Metric] = []
    findings: list[Finding] = []
    notes: list[str] = []
