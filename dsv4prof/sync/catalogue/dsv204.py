"""DSV204: a write after a read on another stream."""

from __future__ import annotations

from dsv4prof.sync.catalogue.form import Fix, Form

FORMS: tuple[Form, ...] = (
    Form(
        id="write-after-read-across-streams",
        code="DSV204",
        what="a tensor written on one stream while another may still read it",
        syntax=("with torch.cuda.stream(side): y = f(x)", "x.copy_(new)  # on the main stream, without an order"),
        condition="neither wait_stream, wait_event nor record_stream orders the write after the read",
        direction="none",
        syncs=False,
        times=0,
        kineto_cuda="kernels of two streams on one buffer, without a Stream Wait Event between them",
        kineto_rocm="kernels of two streams on one buffer, without a wait between them (unverified)",
        mark="reported",
        source="sglang #29202",
        fix=Fix("main.wait_event(recorded on the side stream after the read)", "same result"),
    ),
)
