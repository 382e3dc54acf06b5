"""Copies between host and device: when they wait, and when they wait without a word.

A blocking copy always waits. A non_blocking one waits where the host's side is pageable, be it the program's tensor
or the dense temporary that torch makes of a strided one (ATen: copy_requires_temporaries in native/cuda/Copy.cu).
Uploads of pageable memory are staged by the driver up to 2 MiB, to the byte; measured on an H200.
"""

from __future__ import annotations

from typing import Any

from dsv4prof.model.syncs import Kind
from dsv4prof.sync.runtime.calls import OpCall, Reason
from dsv4prof.sync.runtime.reasons.arguments import argument, is_dense, is_tensor, nbytes, on_device, same_layout
from dsv4prof.sync.runtime.reasons.named import named

STAGED_BYTES = 2 << 20


def copy_(call: OpCall) -> tuple[Reason, ...]:
    target, source = argument(call, 0, "self"), argument(call, 1, "src")
    return _copied(call, target, source, bool(argument(call, 2, "non_blocking", False)))


def foreach_copy_(call: OpCall) -> tuple[Reason, ...]:
    targets, sources = argument(call, 0, "self"), argument(call, 1, "src")
    non_blocking = bool(argument(call, 2, "non_blocking", False))
    pairs = zip(targets, sources, strict=False)
    return tuple(reason for pair in pairs for reason in _copied(call, *pair, non_blocking))


def copy_from(call: OpCall) -> tuple[Reason, ...]:
    """aten::_copy_from and its kin take the source first."""
    source, target = argument(call, 0, "self"), argument(call, 1, "dst")
    return _copied(call, target, source, bool(argument(call, 2, "non_blocking", False)))


def to_copy(call: OpCall) -> tuple[Reason, ...]:
    """A new tensor elsewhere. One on the host that is filled without blocking is pinned by torch, so it never waits."""
    source = argument(call, 0, "self")
    device = call.kwargs.get("device")
    if not is_tensor(source) or device is None or not source.numel():
        return ()
    to_host = _type_of(device) == "cpu"
    non_blocking = bool(call.kwargs.get("non_blocking", False))
    if on_device(call, source):
        if not to_host or non_blocking:
            return ()
        return (named("to-cpu", "a blocking copy to the host"),)
    if to_host or _type_of(device) == "meta":
        return ()
    if not non_blocking:
        return (named("to-device", "a blocking upload; pinned memory alone does not change that"),)
    return _upload(call, source, dense=is_dense(source))


def pinned(call: OpCall) -> tuple[Reason, ...]:
    """New page-locked memory: milliseconds of the host, without a wait for a stream (measured)."""
    text = "page-locked memory is slow to get: 1 ms for 4 KiB, 5 ms for 8 MiB"
    return (named("pin-memory", text, kind=Kind.SUSPECT),)


def _copied(call: OpCall, target: Any, source: Any, non_blocking: bool) -> tuple[Reason, ...]:
    if not (is_tensor(target) and is_tensor(source)) or not target.numel():
        return ()
    down, up = on_device(call, source), on_device(call, target)
    if down == up:
        return ()
    if not non_blocking:
        if down:
            return (named("copy-to-host", "a blocking copy to the host"),)
        return (named("copy-from-host", "a blocking upload; pinned memory alone does not change that"),)
    direct = source.dtype == target.dtype and same_layout(target, source)
    if down:
        return _download(call, target, direct=direct)
    whole = source.is_contiguous() and tuple(source.shape) == tuple(target.shape)
    return _upload(call, source, dense=direct or whole)


def _download(call: OpCall, target: Any, *, direct: bool) -> tuple[Reason, ...]:
    if call.place_of(target) != "pinned":
        text = "non_blocking has no effect into pageable memory, and nothing warns"
        return (named("copy-to-pageable-nonblocking", text, kind=Kind.SILENT),)
    if direct or target.is_contiguous():
        return ()
    text = "the pinned target is not dense, so the copy goes through a pageable temporary"
    return (named("copy-to-strided-pinned-nonblocking", text, kind=Kind.SILENT),)


def _upload(call: OpCall, source: Any, *, dense: bool) -> tuple[Reason, ...]:
    """`dense`: the source's bytes are sent as they lie; else a pageable temporary is."""
    pageable = call.place_of(source) != "pinned"
    if not pageable and dense:
        return ()
    form = "upload-nonblocking-pageable" if pageable else "upload-nonblocking-strided-pinned"
    why = "pageable memory" if pageable else "pinned memory that is not dense goes through a pageable temporary, which"
    if nbytes(source) > STAGED_BYTES:
        return (named(form, f"{why} of over 2 MiB is copied while the host waits", kind=Kind.SILENT),)
    return (named(form, f"{why} of up to 2 MiB is staged, unless several are pending", kind=Kind.SUSPECT),)


def _type_of(device: Any) -> str:
    return str(getattr(device, "type", device)).split(":")[0]
