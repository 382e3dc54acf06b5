"""DSV202: a non_blocking copy is read before its event."""

from __future__ import annotations

from dsv4prof.model.finding import Severity
from dsv4prof.rules.rule import Rule

RULE = Rule(
    code="DSV202",
    name="copy-read-before-event",
    severity=Severity.ERROR,
    summary="a non_blocking copy to the host is read before its event",
    doc="The call returns before the bytes have arrived. What is read then is whatever lay there before, and only "
    "under load: tests on an idle device pass.",
    source="a host tensor made by `.to('cpu', non_blocking=True)` or `copy_(..., non_blocking=True)` that is read with"
    " no wait for an event, a stream or the device between.",
    run="`dsv4prof hazards`: the copy's destination is read, by an operator, numpy or tolist, before an event "
    "recorded behind the copy, its stream or the device was waited for.",
    trace="not visible: a read of host memory leaves no record.",
    bad='host = lens.to("cpu", non_blocking=True)\ntotal = sum(host.tolist())',
    good='host = lens.to("cpu", non_blocking=True)\ncopied.record()\ncopied.synchronize()\ntotal = sum(host.tolist())',
    fix="record an event after the copy, on the stream of the copy, and wait for it before the read",
    unsafe="an event recorded on another stream than the copy's orders nothing",
    references=(
        "sglang #16493",
        "DeepSpeed #501",
    ),
)
