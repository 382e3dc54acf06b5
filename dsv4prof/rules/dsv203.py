"""DSV203: a staging buffer is freed or written while a copy is pending."""

from __future__ import annotations

from dsv4prof.model.finding import Severity
from dsv4prof.rules.rule import Rule

RULE = Rule(
    code="DSV203",
    name="staging-buffer-reused",
    severity=Severity.WARNING,
    summary="a staging buffer is freed or written while a copy is pending",
    doc="An asynchronous upload reads its pinned source when the device gets to it. Written again before that, the "
    "device sees the newer values; freed by other means than torch's allocator, it reads memory that is gone. A"
    " blocking copy or a read elsewhere in the step hides it: removing that sync uncovers it.",
    source="looked for by `dsv4prof audit code --diff` where a change removes a sync: a pinned buffer that is written "
    "after an upload from it, without an event between.",
    run="`dsv4prof hazards` keeps what every queued copy reads, raw ones too, and tells a write or a free of it "
    "that no event, stream or device was waited for; writes by numpy or C++ are known by their changed bytes.",
    trace="a write of the buffer has no record; only the copy's start and the events are visible.",
    bad="staging.copy_(lens)\nx.copy_(staging, non_blocking=True)\nstaging.copy_(more)  # the upload may not have run",
    good="staging.copy_(lens)\n"
    "x.copy_(staging, non_blocking=True)\n"
    "uploaded.record()\n"
    "...\n"
    "uploaded.synchronize()\n"
    "staging.copy_(more)",
    fix="two buffers in turn, and an event for each that is waited for before the buffer is written again",
    unsafe="record_stream covers memory of torch's caching allocators alone, not a raw allocation",
    references=(
        "vllm-ascend #12079",
        "sglang #29202",
    ),
)
