"""DSV204: a write after a read on another stream."""

from __future__ import annotations

from dsv4prof.model.finding import Severity
from dsv4prof.rules.rule import Rule

RULE = Rule(
    code="DSV204",
    name="write-after-read-across-streams",
    severity=Severity.WARNING,
    summary="a tensor is written on one stream while another may still read it",
    doc="Streams are ordered only where something orders them. A host sync between two steps orders everything, so "
    "the race shows when that sync is removed, as wrong values or as a memory access fault.",
    source="looked for by `dsv4prof audit code --diff` where a change removes a sync: a tensor used inside "
    "`torch.cuda.stream(side)` and written in place outside it, without wait_stream, wait_event or "
    "record_stream.",
    run="`dsv4prof hazards` keeps vector clocks of the host and of each stream, and tells accesses of common bytes "
    "on two streams that nothing orders; also memory freed while another stream uses it, without record_stream.",
    trace="kernels of two streams that overlap in time and share a buffer; a trace does not name buffers.",
    bad="with torch.cuda.stream(side):\n    out = attend(meta)\nmeta.copy_(next_meta)",
    good="with torch.cuda.stream(side):\n"
    "    out = attend(meta)\n"
    "    read.record()\n"
    "torch.cuda.current_stream().wait_event(read)\n"
    "meta.copy_(next_meta)",
    fix="an event recorded after the read, and waited for by the stream that writes; or two buffers in turn",
    unsafe="inside a captured graph the order must be part of the capture",
    references=("sglang #29202",),
)
