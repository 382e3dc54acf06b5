"""DSV101: a device scalar is read by the host."""

from __future__ import annotations

from dsv4prof.model.finding import Severity
from dsv4prof.rules.rule import MEASURE, WAIT, Rule

RULE = Rule(
    code="DSV101",
    name="scalar-read",
    severity=Severity.WARNING,
    summary="a device scalar is read by the host",
    doc=WAIT + "Many library functions read one inside, to check their arguments or to choose a size.",
    source="`.item()`, `int()`, `float()`, a tensor of no dimension as an index or as a number parameter, and "
    "functions known to read back, on a value that is inferred to be a device tensor.",
    run="set_sync_debug_mode warns; a dispatch mode sees aten::_local_scalar_dense.",
    trace="aten::_local_scalar_dense. CUDA: a 4- or 8-byte Memcpy DtoH (Device -> Pinned) and cudaStreamSynchronize. "
    "ROCm: one hipMemcpyWithStream, with no hipStreamSynchronize after it.",
    bad="longest = int(seq_lens.max())\nmask = positions < longest",
    good="longest = max(seq_lens_cpu)  # a mirror, updated where the lengths are\n"
    "mask = positions < seq_lens.max()  # or never leave the device",
    fix="keep the value on the device, or keep a mirror of it on the host where it is made. " + MEASURE,
    unsafe="a mirror that is not updated wherever the device value changes is worse than the wait (sglang #31364). An "
    "upper bound in place of the value is safe only where a bound is enough",
    references=(
        "sglang #31364",
        "diffusers #14589",
    ),
)
