"""Building blocks: which operand decides where a result lives, a result made from it, an effect said of it."""

from __future__ import annotations

from collections.abc import Iterable

from dsv4prof.sync.code.effects import Args, Effect, Outcome
from dsv4prof.sync.code.values import (
    CERTAIN,
    HOST_NUMBER,
    HOST_PLACES,
    LIKELY,
    MAPPING,
    NO_PARAMS,
    ON_DEVICE,
    POSSIBLE,
    SEQUENCE,
    TENSOR,
    UNKNOWN,
    Value,
    Why,
)

HOST_RESULT = Outcome(HOST_NUMBER)
# `ref` of a tensor that a product made: its backward pass looks for zeros on the host.
PRODUCT = "prod"
# How deep tensors are looked for in lists of lists.
_DEPTH = 4


def on_device(value: Value) -> bool:
    """Whether it may be a device tensor."""
    return bool(value.kinds & TENSOR and value.places & ON_DEVICE)


def on_host(value: Value) -> bool:
    """Whether it is a tensor that is on the host on every path."""
    return bool(value.kinds & TENSOR and not value.places & ON_DEVICE)


def device_within(value: Value, depth: int = _DEPTH) -> Value | None:
    """The value itself, or the first device tensor in a list, tuple or dict of them."""
    if value.kinds & TENSOR and value.places & ON_DEVICE:
        return value
    if depth and value.kinds & (SEQUENCE | MAPPING):
        for item in value.items or ((value.element,) if value.element is not None else ()):
            found = device_within(item, depth - 1)
            if found is not None:
                return found
    return None


def tensor_within(value: Value, depth: int = _DEPTH) -> Value | None:
    """The tensor that decides where a list of tensors, or a tensor, lives."""
    if value.kinds & TENSOR:
        return value
    if not depth or not value.kinds & (SEQUENCE | MAPPING):
        return None
    if value.items is None:
        return tensor_within(value.element, depth - 1) if value.element is not None else None
    return deciding(value.items, depth - 1)


def deciding(operands: Iterable[Value], depth: int = _DEPTH) -> Value | None:
    """Of the operands of one torch operator the one that says where its result lives; None without any tensor.

    Torch refuses a mix of host and device tensors, but for host tensors of no dimension. So where both are claimed, one
    claim is wrong: a host mark beats the mere assumption that a tensor lives on the device, a proven place beats both.
    """
    device: Value | None = None
    host: Value | None = None
    for operand in operands:
        found = operand if operand.kinds & TENSOR else tensor_within(operand, depth) if depth else None
        if found is None:
            continue
        if found.places & ON_DEVICE:
            if device is None or found.strength > device.strength:
                device = found
        elif host is None or found.strength > host.strength:
            host = found
    if device is None or host is None:
        return device or host
    if host.ndim == 0 or device.strength >= CERTAIN or device.places & HOST_PLACES:
        return device
    return host if host.strength >= device.strength else device


def all_params(operands: Iterable[Value]) -> frozenset[str]:
    """The parameters that any of the operands hangs on."""
    result = NO_PARAMS
    for operand in operands:
        if operand.params:
            result = result | operand.params
    return result


def derived(
    source: Value,
    *,
    dtype: str | None = None,
    ndim: int | None = None,
    numel: int | None = None,
    same: str = "",
    strided: bool = False,
    params: frozenset[str] | None = None,
    least: int = 0,
) -> Value:
    """A tensor computed from `source`: in the same memory, and as sure. dtype None keeps that of the source.

    What is a tensor by its name alone stays so: a view of `token_ids` may be a slice of a list.
    """
    return Value(
        kinds=TENSOR if source.strength != POSSIBLE else TENSOR | (source.kinds & UNKNOWN),
        places=source.places,
        strength=source.strength,
        dtype=source.dtype if dtype is None else dtype,
        ndim=ndim,
        numel=numel,
        same=same,
        why=source.why,
        params=source.params if params is None else params,
        strided=strided,
        pending=source.pending,
        ref=source.ref,
        least=least,
    )


def likely_tensor(text: str) -> Value:
    """A tensor of which the place is not known: on the device, by the custom of serving code."""
    return Value(kinds=TENSOR, places=ON_DEVICE, strength=LIKELY, why=Why(text))


def effect(
    form: str,
    value: Value,
    reason: str,
    *,
    level: int = CERTAIN,
    times: int = 1,
    others: tuple[Value, ...] = (),
    facts: dict[str, str] | None = None,
) -> Effect:
    """`form` happens because of `value`: as sure as it is that the value lives on the device, and at most `level`."""
    params = value.params
    for other in others:
        if other.params:
            params = params | other.params
    return Effect(
        form=form,
        level=min(level, value.strength),
        reason=reason,
        why=value.why,
        times=times,
        params=params,
        facts=facts or {},
        mixed=bool(value.places & ON_DEVICE and value.places & HOST_PLACES),
    )


def every(args: Args) -> tuple[Value, ...]:
    """Positional and keyword arguments together."""
    return args.positional + tuple(args.keywords.values()) if args.keywords else args.positional


def after(args: Args, count: int, *names: str) -> Args:
    """The arguments without the first `count` positional ones (and without the keywords that stood for them)."""
    keywords = {name: value for name, value in args.keywords.items() if name not in names} if names else args.keywords
    return Args(args.positional[count:], keywords, args.open, args.hidden)
