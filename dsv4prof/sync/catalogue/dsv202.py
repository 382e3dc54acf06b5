"""DSV202: a non_blocking copy read before its event."""

from __future__ import annotations

from dsv4prof.sync.catalogue.form import Fix, Form

FORMS: tuple[Form, ...] = (
    Form(
        id="nonblocking-copy-read-early",
        code="DSV202",
        what="a non_blocking copy to the host read before its event",
        syntax=('h = t.to("cpu", non_blocking=True); h.tolist()', "pinned.copy_(t, non_blocking=True); pinned[0]"),
        condition="no event, stream or device is waited for between the copy and the read: what is read may be old",
        direction="none",
        syncs=False,
        times=0,
        event=("aten::_to_copy", "aten::copy_"),
        kineto_cuda="cudaMemcpyAsync (DtoH, Pinned), no synchronize call before the read",
        kineto_rocm="hipMemcpyAsync, no synchronize call before the read (unverified)",
        mark="reported",
        source="sglang #16493, DeepSpeed #501",
        fix=Fix("record an event after the copy, and wait for it before the read", "same result"),
    ),
)
