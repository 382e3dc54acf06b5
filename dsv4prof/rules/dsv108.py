"""DSV108: a blocking upload from host memory."""

from __future__ import annotations

from dsv4prof.model.finding import Severity
from dsv4prof.rules.rule import WAIT, Rule

RULE = Rule(
    code="DSV108",
    name="upload",
    severity=Severity.WARNING,
    summary="a blocking upload from host memory",
    doc=WAIT
    + "Nothing is read back, so it is easily missed: torch.tensor(list, device=), a list or CPU tensor as index, "
    "and, up to torch 2.13, a Python number assigned to one element or through an index. Even from pinned "
    "memory a copy without non_blocking=True waits.",
    source="host data given to a device: a list with `device=`, `.to(dev)` of a host tensor, `x[[0, 1]]`, `x[0] = 5`.",
    run="set_sync_debug_mode warns. A large non_blocking upload from pageable memory waits without a warning.",
    trace="CUDA: Memcpy HtoD (Pageable -> Device) and cudaStreamSynchronize. ROCm: one hipMemcpyWithStream.",
    bad="steps = torch.tensor([step] * batch, device=dev)\ncu_seqlens[0] = 0",
    good="steps = torch.full((batch,), step, device=dev)\ncu_seqlens[0:1] = 0",
    fix="torch.full, torch.arange, zeros or a slice where they say the same; a tensor cached on the device; or "
    "pinned memory with non_blocking=True",
    unsafe="a pinned source that is written again before the upload ran (DSV203); pinning in the hot path stalls more "
    "than it saves (DSV111)",
    references=(
        "sglang #29415 (8.5 ms a step)",
        "vllm #56170 (727 to 802 ms a rank on ROCm)",
        "vllm-ascend #12079",
    ),
)
