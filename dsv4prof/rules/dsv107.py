"""DSV107: the truth of a device tensor is asked by the host."""

from __future__ import annotations

from dsv4prof.model.finding import Severity
from dsv4prof.rules.rule import WAIT, Rule

RULE = Rule(
    code="DSV107",
    name="truth-of-tensor",
    severity=Severity.WARNING,
    summary="the truth of a device tensor is asked by the host",
    doc=WAIT + "if, while, assert, not, and, or, in, a chain of comparisons, torch.equal and allclose ask for it. The "
    "builtins min, max, any, all and sorted over tensors wait once a comparison or an element.",
    source="a device tensor where Python needs a truth. `t is None`, `len(t)` and `t.numel()` are known to the host.",
    run="set_sync_debug_mode warns; a dispatch mode sees aten::is_nonzero or aten::equal.",
    trace="aten::is_nonzero, aten::item, aten::_local_scalar_dense, then as DSV101.",
    bad="if (seq_lens > limit).any():\n    seq_lens = seq_lens.clamp(max=limit)",
    good="seq_lens = seq_lens.clamp(max=limit)  # the same where nothing is over the limit",
    fix="do the work for both answers and choose with torch.where; torch._assert_async for checks",
    unsafe="where the branch has an effect on the host (a message, an exception, another kernel) the choice cannot "
    "move; torch._assert_async fails later and takes the process down",
)
