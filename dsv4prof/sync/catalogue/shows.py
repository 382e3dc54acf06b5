"""How a form shows in a recorded trace, and two short ways of writing forms that wait and look-alikes that do not.

What is said of CUDA was recorded on an H200. What is said of ROCm comes from ATen's source: nothing of it has been seen
on hardware yet, and each text says so.
"""

from __future__ import annotations

from typing import Any

import msgspec

from dsv4prof.sync.catalogue.form import Direction, Form


class Trace(msgspec.Struct, frozen=True):
    """What the host calls and what the device copies, for one kind of wait."""

    direction: Direction
    cuda: str
    rocm: str


_ONE_CALL = "one hipMemcpyWithStream, and no hipStreamSynchronize after it (unverified)"

SCALAR = Trace("d2h", "cudaMemcpyAsync, Memcpy DtoH (Device -> Pinned), then cudaStreamSynchronize", _ONE_CALL)
COUNT = Trace("d2h", "kernels, cudaMemcpyAsync of a count (DtoH, Pinned), then cudaStreamSynchronize", _ONE_CALL)
TO_HOST = Trace("d2h", "cudaMemcpyAsync, Memcpy DtoH (Device -> Pageable), then cudaStreamSynchronize", _ONE_CALL)
TO_PINNED = Trace("d2h", "cudaMemcpyAsync, Memcpy DtoH (Device -> Pinned), then cudaStreamSynchronize", _ONE_CALL)
SILENT_TO_HOST = Trace(
    "d2h",
    "one long cudaMemcpyAsync, Memcpy DtoH (Device -> Pageable); no synchronize call, no warning",
    "one long hipMemcpyAsync, no synchronize call (unverified)",
)
TO_DEVICE = Trace("h2d", "cudaMemcpyAsync, Memcpy HtoD (Pageable -> Device), then cudaStreamSynchronize", _ONE_CALL)
SILENT_TO_DEVICE = Trace(
    "h2d",
    "one long cudaMemcpyAsync, Memcpy HtoD (Pageable -> Device); no synchronize call, no warning",
    "one long hipMemcpyAsync, no synchronize call (unverified)",
)
THRUST = Trace(
    "d2h",
    "cudaStreamSynchronize several times, from thrust or cub, without a warning",
    "hipStreamSynchronize several times, from rocThrust (unverified)",
)
NOTHING = Trace("none", "no runtime call that waits", "no runtime call that waits (unverified)")


def waits(trace: Trace, code: str, id: str, what: str, syntax: tuple[str, ...], when: str, **rest: Any) -> Form:
    """A form that makes the host wait, seen as `trace` says. `rest` are fields of Form."""
    return Form(
        id=id,
        code=code,
        what=what,
        syntax=syntax,
        condition=when,
        direction=trace.direction,
        kineto_cuda=trace.cuda,
        kineto_rocm=trace.rocm,
        **rest,
    )


def free(code: str, id: str, what: str, syntax: tuple[str, ...], when: str, **rest: Any) -> Form:
    """A look-alike of `code` that does not make the host wait."""
    return Form(
        id=id,
        code=code,
        what=what,
        syntax=syntax,
        condition=when,
        direction="none",
        syncs=False,
        times=0,
        kineto_cuda=NOTHING.cuda,
        kineto_rocm=NOTHING.rocm,
        **rest,
    )
