"""DSV111: the allocator or the pinning of memory stalls a hot path."""

from __future__ import annotations

from dsv4prof.model.finding import Severity
from dsv4prof.rules.rule import Rule

RULE = Rule(
    code="DSV111",
    name="allocation-stall",
    severity=Severity.WARNING,
    summary="the allocator or the pinning of memory stalls a hot path",
    doc="cudaFree and hipFree wait for the device. Pinning memory does not wait for a stream, but takes long: a new"
    " block of 8 MiB took 12.7 to 14.4 ms on an H200 host. Both happen only when a cache has no block, so they "
    "show as rare long steps.",
    source="`torch.cuda.empty_cache()`, `.pin_memory()` and `pin_memory=True` in a function of the hot path.",
    run="torch does not warn; the duration of the call tells.",
    trace="cudaFree, cudaHostAlloc or cudaMalloc (hipFree, hipHostMalloc, hipMalloc) of over 0.2 ms.",
    bad="def upload(lens: list[int], dev: torch.device) -> torch.Tensor:\n"
    "    staging = torch.tensor(lens, pin_memory=True)\n"
    "    return staging.to(dev, non_blocking=True)",
    good="staging[: len(lens)] = torch.tensor(lens)  # pinned once, at start\n"
    "lens_dev[: len(lens)].copy_(staging[: len(lens)], non_blocking=True)\n"
    "uploaded.record()",
    fix="allocate the largest sizes once, before the hot path; leave empty_cache out of it",
    unsafe="a staging buffer that is used again needs an event before it is written: DSV203",
    references=(
        "vllm #37006",
        "vllm-ascend #12079",
    ),
)
