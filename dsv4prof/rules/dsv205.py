"""DSV205: a removed sync that is not shown safe."""

from __future__ import annotations

from dsv4prof.model.finding import Severity
from dsv4prof.rules.rule import Rule

RULE = Rule(
    code="DSV205",
    name="removed-sync-not-shown-safe",
    severity=Severity.WARNING,
    summary="a change removes a sync, and nothing shows that it is safe",
    doc="A sync orders more than it was written for. A change that removed one was taken back because of a fault "
    "that has three candidate causes: an output_size that was not exact, a staging buffer freed while a copy "
    "was pending, and a write after a read across streams (sglang #29202).",
    source="`dsv4prof audit code --diff` calls a removed sync fixed only when its replacement is proven: an exact "
    "total, an event, and neither a staging buffer nor a write across streams behind it. Also where a line that"
    " `allow[...] protects=NAME` names is removed.",
    run="`dsv4prof hazards explain FILE:LINE` judges a recorded run again without the waits of that place: what "
    "appears then is what the sync protects, as far as that run exercised it.",
    trace="two recordings, before and after: copies and kernels of different streams that overlap now and did not.",
    bad="- total = int(counts.sum())\n"
    "- rows = torch.repeat_interleave(ids, counts, output_size=total)\n"
    "+ rows = torch.repeat_interleave(ids, counts, output_size=max_rows)",
    good="- total = int(counts.sum())\n"
    "+ total = sum(counts_list)\n"
    "  rows = torch.repeat_interleave(ids, counts, output_size=total)",
    fix="take the value from the host, exactly; or order what relied on the wait with an event; or keep the wait "
    "and say what it protects: allow[DSV101] protects=NAME reason",
    unsafe="that no test fails proves little: these races need load, and other hardware",
    references=("sglang #29202",),
)
