"""DSV206: tensors of a plan changed between its making and its use."""

from __future__ import annotations

from dsv4prof.model.finding import Severity
from dsv4prof.rules.rule import Rule

RULE = Rule(
    code="DSV206",
    name="plan-changed-before-use",
    severity=Severity.ERROR,
    summary="tensors of a plan are not what they were when it was built",
    doc="A plan is built early and read late: by a graph's replay, or by kernels that are queued behind others. "
    "Whoever writes its tensors in between (a buffer used again, a race, a stale mirror) shows only as wrong "
    "addresses, and on a GPU as a memory access fault that names no kernel.",
    source="not looked for: who else writes a plan's memory is known only when it runs.",
    run="`guard_plan(name, tensors)` where the plan is built and `check_plan(name, tensors)` where it is used queue "
    "sums of the bytes on the device, which are compared when they have arrived; nothing waits.",
    trace="not visible: both look like any small kernel.",
    bad="plan = build(lens)\n"
    "guard_plan('verify', plan)\n"
    "scratch.copy_(other)  # the memory that plan is a view of\n"
    "check_plan('verify', plan)\n"
    "graph.replay()",
    good="plan = [part.clone() for part in build(lens)]\n"
    "guard_plan('verify', plan)\n"
    "scratch.copy_(other)\n"
    "check_plan('verify', plan)\n"
    "graph.replay()",
    fix="memory that the plan owns until its last reader is done, or an order between the writer and that reader",
    unsafe="the sums are taken on the current stream: a write on another stream may fall after the check",
    references=("sglang #29202",),
)
