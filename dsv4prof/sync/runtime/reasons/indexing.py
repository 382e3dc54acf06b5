"""Indexing: a mask is a count that the host must know, a host index is an upload, a number may be one too.

From ATen's expandTensors, canDispatchToMaskedFill, and _index_put_impl_.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dsv4prof.sync.runtime.calls import OpCall, Reason
from dsv4prof.sync.runtime.reasons.arguments import argument, is_mask, is_tensor, on_device, on_host
from dsv4prof.sync.runtime.reasons.named import named
from dsv4prof.sync.runtime.reasons.versions import within


def index(call: OpCall, version: tuple[int, ...]) -> tuple[Reason, ...]:
    if not on_device(call, argument(call, 0, "self")):
        return ()
    return _positions(call, argument(call, 1, "indices", ()), version, mask_form="mask-index")


def index_put(call: OpCall, version: tuple[int, ...]) -> tuple[Reason, ...]:
    """`accumulate` rules the shortcut of one mask and one host number out."""
    target, indices = argument(call, 0, "self"), argument(call, 1, "indices", ())
    values = argument(call, 2, "values")
    if not on_device(call, target) or not is_tensor(values):
        return ()
    if not argument(call, 3, "accumulate", False) and _is_masked_fill(call, indices, values):
        return ()
    reasons = _positions(call, indices, version, mask_form="mask-assign")
    if on_host(call, values) and values.numel():
        uploaded = "index-put-host-value" if values.dim() else "assign-index-number"
        if values.dim() or within("assign-index-number", version):
            reasons += (named(uploaded, "a host value is uploaded before it is written"),)
    return reasons


def masked_fill(call: OpCall) -> tuple[Reason, ...]:
    if not (on_device(call, argument(call, 0, "self")) and on_device(call, argument(call, 2, "value"))):
        return ()
    return (named("masked-fill-tensor", "the fill value is read back: value.item()"),)


def index_fill(call: OpCall) -> tuple[Reason, ...]:
    if not (on_device(call, argument(call, 0, "self")) and on_device(call, argument(call, 3, "value"))):
        return ()
    return (named("index-fill-tensor", "the fill value is read back: value.item()"),)


def where(call: OpCall) -> tuple[Reason, ...]:
    """A host scalar beside device operands is uploaded."""
    parts = [argument(call, place, name) for place, name in enumerate(("condition", "self", "other"))]
    if not any(on_device(call, part) for part in parts):
        return ()
    text = "a host tensor of no dimension is uploaded"
    return tuple(named("where-host-tensor", text) for part in parts if on_host(call, part) and part.numel())


def _positions(call: OpCall, indices: Sequence[Any], version: tuple[int, ...], *, mask_form: str) -> tuple[Reason, ...]:
    reasons: list[Reason] = []
    for one in indices:
        if not is_tensor(one) or not one.numel():
            continue
        if on_device(call, one):
            if is_mask(one):
                reasons.append(named(mask_form, "the number of set places is read back (nonzero)", times=1))
        elif not is_mask(one):
            reasons.append(named("index-by-host-tensor", "a host index is uploaded"))
        elif within("index-by-host-mask", version):
            reasons.append(named("index-by-host-mask", "a host mask is turned into positions and uploaded"))
    return tuple(reasons)


def _is_masked_fill(call: OpCall, indices: Sequence[Any], values: Any) -> bool:
    """One device mask and one host number: torch fills by the mask instead of looking for its places."""
    given = [one for one in indices if is_tensor(one)]
    if values.numel() != 1 or not on_host(call, values):
        return False
    return len(given) == 1 and is_mask(given[0]) and on_device(call, given[0])
