"""What a viewer shows of a file: the importer's own counts beside the prediction made without it.

The prediction (`trace.check`) needs neither node nor a wheel; where both are there they must agree.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from dsv4prof.query.importer import Counts, Importer, importer_version
from dsv4prof.trace.check import CheckResult

# The importer's name for each fault that both count one by one. An arrow whose id is no number it passes in silence.
_SAME = {
    "overlapping": "slice_drop_overlapping_complete_event",
    "duplicate_flows": "flow_duplicate_id",
    "flow_ends_without_start": "flow_end_without_start",
}


class ImportCheck(msgspec.Struct, frozen=True):
    """One import: what it holds, what the importer counted as errors, and what it remarks, by its own names."""

    version: str
    counts: Counts
    errors: dict[str, int]
    remarks: dict[str, int]

    @property
    def ok(self) -> bool:
        return not self.errors


def check_with_importer(path: str | Path, *, timeout_s: float = 600) -> ImportCheck:
    """Import a file and count. Raises what `Importer` raises."""
    with Importer(path, timeout_s=timeout_s) as importer:
        return ImportCheck(importer_version(), importer.counts(), importer.errors(), importer.remarks())


def disagreements(predicted: CheckResult, found: ImportCheck) -> list[str]:
    """Where the prediction for a Chrome JSON file and the import differ, one sentence each; empty when they agree."""
    seen = {**found.remarks, **found.errors}
    pairs = [(name, getattr(predicted, name), seen.get(stat, 0)) for name, stat in _SAME.items()]
    return [f"{name}: predicted {said}, the importer counts {count}" for name, said, count in pairs if said != count]
