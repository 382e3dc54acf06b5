"""DSV103: a blocking copy from the device to the host."""

from __future__ import annotations

from dsv4prof.model.finding import Severity
from dsv4prof.rules.rule import WAIT, Rule

RULE = Rule(
    code="DSV103",
    name="blocking-copy-to-host",
    severity=Severity.WARNING,
    summary="a blocking copy from the device to the host",
    doc=WAIT
    + "`non_blocking=True` helps only when the destination is pinned and dense: into pageable memory, or into a "
    "strided view of pinned memory, the call blocks all the same, and no warning of torch says so.",
    source='`.cpu()`, `.to("cpu")`, `host.copy_(t)` and `host[:n] = t` on a device tensor; `non_blocking=True` into a '
    "destination that is pageable or not dense.",
    run="set_sync_debug_mode warns of the plain ones. The non_blocking ones that block are silent: they are seen by"
    " the duration of the call.",
    trace="CUDA: Memcpy DtoH and cudaStreamSynchronize, or one long cudaMemcpyAsync. ROCm: one hipMemcpyWithStream.",
    bad="next_ids = sampled.cpu()",
    good='next_ids = sampled.to("cpu", non_blocking=True)  # torch pins the result by itself\n'
    "copied.record()\n"
    "...\n"
    "copied.synchronize()  # as late as possible",
    fix="copy with non_blocking=True into pinned memory, record an event, and read only after waiting for it",
    unsafe="reading before the event (DSV202); a pinned buffer that is used again before the copy ran (DSV203); an "
    "object collective over a device group needs another group, not a non_blocking copy",
    references=(
        "sglang #16493",
        "DeepSpeed #501",
        "vllm #51841",
        "sglang #27689",
    ),
)
