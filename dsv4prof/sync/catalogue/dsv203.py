"""DSV203: a staging buffer freed or reused while a copy is pending."""

from __future__ import annotations

from dsv4prof.sync.catalogue.form import Fix, Form

FORMS: tuple[Form, ...] = (
    Form(
        id="staging-buffer-reused",
        code="DSV203",
        what="a staging buffer freed or written while a copy from it is pending",
        syntax=("pinned.copy_(new); x.copy_(pinned, non_blocking=True); pinned.copy_(newer)",),
        condition="the source of an asynchronous upload is written again, or freed by other means than torch's "
        "allocator, before the upload ran",
        direction="none",
        syncs=False,
        times=0,
        event=("aten::copy_",),
        kineto_cuda="cudaMemcpyAsync (HtoD, Pinned), and a write of the source before the copy starts",
        kineto_rocm="hipMemcpyAsync, and a write of the source before the copy starts (unverified)",
        mark="reported",
        source="vllm-ascend #12079, sglang #29202",
        fix=Fix(
            "two buffers and an event for each, waited for before the buffer is written again", "caller must prove"
        ),
    ),
)
