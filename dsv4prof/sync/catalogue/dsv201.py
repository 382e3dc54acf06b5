"""DSV201: an output_size that is not provably the exact sum."""

from __future__ import annotations

from dsv4prof.sync.catalogue.form import Fix, Form

FORMS: tuple[Form, ...] = (
    Form(
        id="output-size-not-exact",
        code="DSV201",
        what="an output_size that is not provably the sum of repeats",
        syntax=("torch.repeat_interleave(x, repeats, output_size=upper_bound)",),
        condition="output_size is a contract: another value than the exact sum leaves rows unwritten or writes out of "
        "bounds; on ROCm the check is off or silent, and the next sign is a memory access fault",
        direction="none",
        syncs=False,
        times=0,
        event=("aten::repeat_interleave",),
        kineto_cuda="nothing, or a device-side assertion later",
        kineto_rocm="nothing, or a memory access fault later (reported)",
        mark="reported",
        source="sglang #29202",
        fix=Fix("the exact total of the same lengths, kept on the host where repeats come from", "exact total needed"),
    ),
)
