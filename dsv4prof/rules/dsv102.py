"""DSV102: a device tensor becomes a Python list."""

from __future__ import annotations

from dsv4prof.model.finding import Severity
from dsv4prof.rules.rule import WAIT, Rule

RULE = Rule(
    code="DSV102",
    name="tolist",
    severity=Severity.WARNING,
    summary="a device tensor becomes a Python list",
    doc=WAIT
    + "It is one blocking copy for the whole tensor, not one an element: one `tolist()` is better than a loop of "
    "`.item()`, and a list that was built on the host is better still.",
    source="`.tolist()` on a value that is inferred to be a device tensor; a name such as `lens_cpu` on the left does "
    "not make the right side a host tensor.",
    run="set_sync_debug_mode warns once; a dispatch mode sees aten::_to_copy.",
    trace="CUDA: one Memcpy DtoH (Device -> Pageable) and cudaStreamSynchronize. ROCm: one hipMemcpyWithStream. On a "
    "CPU it leaves no operator.",
    bad="for request, n in zip(requests, accept_lens.tolist()):\n    request.advance(n)",
    good='host = accept_lens.to("cpu", non_blocking=True)\n'
    "copied.record()\n"
    "...  # launch the next step\n"
    "copied.synchronize()\n"
    "for request, n in zip(requests, host.tolist()):\n"
    "    request.advance(n)",
    fix="build the list on the host, where its values come from; else copy without blocking, do other work, wait "
    "for an event, and then make the list",
    unsafe="reading the copy before its event gives old values: DSV202",
    references=("sglang #16493",),
)
