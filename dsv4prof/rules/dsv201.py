"""DSV201: an output_size that is not provably the exact sum."""

from __future__ import annotations

from dsv4prof.model.finding import Severity
from dsv4prof.rules.rule import Rule

RULE = Rule(
    code="DSV201",
    name="output-size-not-exact",
    severity=Severity.WARNING,
    summary="an output_size that is not provably the sum of repeats",
    doc="output_size of repeat_interleave is a contract, not a hint. A larger value leaves rows uninitialised, a "
    "smaller one aborts in the kernel or writes out of bounds. On ROCm the check is off or has no message, so "
    "that it looks like an anonymous GPU memory access fault, far from its cause.",
    source="repeat_interleave with an output_size whose value is not shown to be the sum of the list that repeats was "
    "made from. A padded size, a maximum and a value read from another tensor are not.",
    run="`dsv4prof hazards` compares counts.sum() with output_size: on the device, without a wait, or on "
    "shadow tensors before the operator can fail.",
    trace="not visible: it looks like every repeat_interleave with output_size, that is, without a read inside.",
    bad="counts = torch.tensor(lens, device=dev)\n"
    "rows = torch.repeat_interleave(ids, counts, output_size=max_len * len(lens))",
    good="counts = torch.tensor(lens, device=dev)\nrows = torch.repeat_interleave(ids, counts, output_size=sum(lens))",
    fix="the exact total, taken from the same list that repeats was made from",
    unsafe="padding repeats afterwards changes their sum: pad both or neither",
    references=("sglang #29202",),
)
