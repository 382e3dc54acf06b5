"""Every known fault, in the order in which they are tried and shown."""

from __future__ import annotations

from dsv4prof.recorder.faults import destruction, endings, files, order, processes
from dsv4prof.recorder.faults.fault import Fault

FAULTS: tuple[Fault, ...] = (
    *order.FAULTS,
    *endings.FAULTS,
    *files.FAULTS,
    *processes.FAULTS,
    *destruction.FAULTS,
)


def fault_named(name: str) -> Fault | None:
    return next((fault for fault in FAULTS if fault.name == name), None)
