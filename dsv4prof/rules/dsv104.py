"""DSV104: a device tensor becomes a NumPy array."""

from __future__ import annotations

from dsv4prof.model.finding import Severity
from dsv4prof.rules.rule import WAIT, Rule

RULE = Rule(
    code="DSV104",
    name="numpy",
    severity=Severity.WARNING,
    summary="a device tensor becomes a NumPy array",
    doc=WAIT + "NumPy has only host memory, so the tensor is copied first, and that copy blocks.",
    source="`.numpy(force=True)` on a device tensor. Of `.cpu().numpy()` it is `.cpu()` that waits: DSV103 there.",
    run="set_sync_debug_mode warns; a dispatch mode sees aten::_to_copy.",
    trace="as DSV103: a copy to pageable memory and a wait for the stream.",
    bad="indptr = kv_indptr.numpy(force=True)",
    good="indptr = kv_indptr_host  # built with NumPy first, and uploaded from pinned memory",
    fix="build the array on the host and upload it, not the other way; else treat as DSV103",
    unsafe="an array over a pinned buffer changes when the buffer is written again",
    references=("sglang #27689",),
)
