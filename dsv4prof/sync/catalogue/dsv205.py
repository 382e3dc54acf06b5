"""DSV205: a removed sync that is not shown safe."""

from __future__ import annotations

from dsv4prof.sync.catalogue.form import Fix, Form

FORMS: tuple[Form, ...] = (
    Form(
        id="removed-sync-not-shown-safe",
        code="DSV205",
        what="a sync removed by a change, whose replacement is not shown to be safe",
        syntax=("- n = int(lens.sum())", "+ n = upper_bound"),
        condition="the removed wait also ordered what came after it: an exact total, an event, a staging buffer or "
        "another stream may have relied on it",
        direction="none",
        syncs=False,
        times=0,
        kineto_cuda="nothing",
        kineto_rocm="nothing",
        mark="reported",
        source="sglang #29202",
        fix=Fix("show the exact total, or order the copy with an event; else keep the wait", "caller must prove"),
    ),
)
