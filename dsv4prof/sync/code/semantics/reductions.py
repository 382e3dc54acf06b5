"""Reductions: over everything, or along a dimension."""

from __future__ import annotations

from msgspec.structs import replace

from dsv4prof.sync.code.effects import Args, Outcome
from dsv4prof.sync.code.semantics.listed import listed
from dsv4prof.sync.code.semantics.shapes import Handler, elementwise, without
from dsv4prof.sync.code.semantics.tell import PRODUCT, derived, every
from dsv4prof.sync.code.values import (
    TENSOR,
    Value,
    sequence,
)


def given(value: Value | None) -> bool:
    return value is not None and value.const is not None


def _kept(args: Args, place: int) -> bool:
    keep = args.get(place, "keepdim")
    return keep is not None and keep.const is not False


def _reduced(name: str) -> Handler:
    dtype = _REDUCED_TYPES.get(name)
    dim_place = 1 if name in ("quantile", "nanquantile", "norm") else 0

    def reduce(receiver: Value, args: Args) -> Outcome:
        dim = args.get(dim_place, "dim") or args.keywords.get("axis")
        kind = receiver.dtype if dtype is None else dtype
        if name in ("sum", "cumsum", "prod") and kind in ("bool", "uint8"):
            kind = "int"
        if args.open:
            return Outcome(derived(receiver, dtype=kind))
        if not given(dim) or (name in ("std", "var") and dim is not None and type(dim.const) is bool):
            value = derived(receiver, dtype=kind, ndim=0, numel=1)
            if name == "prod":
                return Outcome(replace(value, ref=PRODUCT))
            return Outcome(replace(value, total=receiver.same) if name == "sum" and receiver.same else value)
        ndim = receiver.ndim if _kept(args, dim_place + 1) else without(receiver.ndim, dim)
        return Outcome(derived(receiver, dtype=kind, ndim=ndim))

    return reduce


_REDUCED_TYPES = {
    "any": "bool",
    "all": "bool",
    "argmax": "int",
    "argmin": "int",
    "count_nonzero": "int",
    "mean": "float",
    "nanmean": "float",
    "std": "float",
    "var": "float",
    "norm": "float",
    "logsumexp": "float",
}


_REDUCTIONS = listed(
    "sum nansum mean nanmean prod std var any all argmax argmin count_nonzero norm logsumexp amax amin quantile "
    "nanquantile dist vector_norm"
)


def _extreme(receiver: Value, args: Args) -> Outcome:
    """max, min, median: all elements, along a dimension (a pair), or of two tensors."""
    first = args.get(0, "dim") or args.keywords.get("axis")
    other = args.get(0, "other")
    if args.open:
        return Outcome(derived(receiver))
    if other is not None and other.kinds & TENSOR:
        return elementwise(receiver, args)
    if not given(first):
        return Outcome(derived(receiver, ndim=0, numel=1))
    ndim = receiver.ndim if _kept(args, 1) else without(receiver.ndim, first)
    return Outcome(_pair(receiver, ndim))


def _pair(receiver: Value, ndim: int | None) -> Value:
    return sequence((derived(receiver, ndim=ndim), derived(receiver, dtype="int", ndim=ndim)))


def _along(receiver: Value, args: Args) -> Outcome:
    """sort, topk, cummax, cummin: a pair of the same dimensions."""
    return Outcome(_pair(receiver, receiver.ndim))


def _kth(receiver: Value, args: Args) -> Outcome:
    return Outcome(_pair(receiver, receiver.ndim if _kept(args, 2) else without(receiver.ndim, None)))


def _cumulated(receiver: Value, args: Args) -> Outcome:
    """cumprod."""
    return Outcome(replace(derived(receiver, ndim=receiver.ndim), ref=PRODUCT))


def _two(receiver: Value, args: Args) -> Outcome:
    """aminmax, std_mean, var_mean, frexp, slogdet."""
    ndim = 0 if not every(args) else None
    return Outcome(sequence((derived(receiver, ndim=ndim), derived(receiver, ndim=ndim))))


REDUCTIONS: dict[str, Handler] = {
    **{name: _reduced(name) for name in _REDUCTIONS},
    **dict.fromkeys(listed("max min median nanmedian"), _extreme),
    **dict.fromkeys(listed("sort topk cummax cummin"), _along),
    "cumprod": _cumulated,
    "kthvalue": _kth,
    **dict.fromkeys(listed("aminmax std_mean var_mean frexp slogdet"), _two),
}
