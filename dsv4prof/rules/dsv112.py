"""DSV112: the same device value is read twice."""

from __future__ import annotations

from dsv4prof.model.finding import Severity
from dsv4prof.rules.rule import WAIT, Rule

RULE = Rule(
    code="DSV112",
    name="value-read-twice",
    severity=Severity.WARNING,
    summary="the same device value is read twice",
    doc=WAIT + "The first read may be needed; the second is not.",
    source="two reads of one tensor in a function, with nothing between them that writes it. It is told "
    "beside the second read's own rule, which stays where this one is ignored.",
    run="two reads of one storage at one version of it.",
    trace="two findings of DSV101 or DSV102 in one call of one function.",
    bad="def plan(lens: torch.Tensor) -> int:\n"
    "    total = int(lens.sum())\n"
    '    logger.info("%d tokens", int(lens.sum()))\n'
    "    return total",
    good="def plan(lens: torch.Tensor) -> int:\n"
    "    total = int(lens.sum())\n"
    '    logger.info("%d tokens", total)\n'
    "    return total",
    fix="read once and keep the host value",
    unsafe="where a kernel writes the tensor between the reads, the two values differ",
)
