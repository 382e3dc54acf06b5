"""Copies into memory that is there, and page-locked memory: copy_, pin_memory, numpy."""

from __future__ import annotations

from msgspec.structs import replace

from dsv4prof.sync.code.effects import Args, Effect, Outcome
from dsv4prof.sync.code.semantics import forms
from dsv4prof.sync.code.semantics.copies import MAY_WAIT, WAITS, to_device, waiting
from dsv4prof.sync.code.semantics.tell import HOST_RESULT, derived, effect, on_device, tensor_within
from dsv4prof.sync.code.values import (
    ARRAY,
    CERTAIN,
    DEVICE,
    HOST_NUMBER,
    HOST_PLACES,
    LIKELY,
    ON_DEVICE,
    PAGEABLE,
    PINNED,
    POSSIBLE,
    TENSOR,
    Value,
)


def numpy(receiver: Value, args: Args) -> Outcome | None:
    """`x.numpy(force=False)`. Without force= a device tensor raises, so whoever calls it holds a host tensor."""
    result = Value(
        kinds=ARRAY,
        strength=CERTAIN,
        dtype=receiver.dtype,
        ndim=receiver.ndim,
        same=receiver.same,
        pending=receiver.pending,
    )
    force = args.get(-1, "force")
    if force is not None and force.const is not False and on_device(receiver):
        level = CERTAIN if force.const is True else POSSIBLE
        reason = "numpy(force=True) copies a device tensor to the host"
        return Outcome(result, (effect(forms.NUMPY_FORCE, receiver, reason, level=level),))
    # A view of the same memory: whoever reads it later may have waited by then.
    return Outcome(result)


def copy_(receiver: Value, args: Args) -> Outcome | None:
    """`destination.copy_(source, non_blocking=False)`."""
    source = args.get(0, "src")
    if source is None or not source.kinds & TENSOR or not receiver.kinds & TENSOR:
        return Outcome(receiver)
    waits = waiting(args.get(1, "non_blocking"))
    effects: list[Effect] = []
    result = receiver
    if on_device(source) and receiver.places & HOST_PLACES:
        result = _into_host(receiver, source, waits, effects)
    if on_device(receiver) and not receiver.places & HOST_PLACES and source.places & HOST_PLACES and source.numel != 0:
        target = Value(kinds=DEVICE, places=ON_DEVICE, strength=receiver.strength, why=receiver.why)
        to_device(source, target, waits, forms.COPY_FROM_HOST, effects)
    return Outcome(replace(result, kinds=TENSOR, total=""), tuple(effects))


def _into_host(receiver: Value, source: Value, waits: int, effects: list[Effect]) -> Value:
    sure = min(receiver.strength, source.strength) if not receiver.places & ON_DEVICE else POSSIBLE
    if waits == WAITS:
        reason = "a blocking copy into host memory, pinned or not"
        effects.append(effect(forms.COPY_TO_HOST, source, reason, level=sure, others=(receiver,)))
    elif waits == MAY_WAIT:
        reason = "non_blocking= may be False"
        effects.append(effect(forms.COPY_TO_HOST, source, reason, level=POSSIBLE, others=(receiver,)))
    elif receiver.places & PAGEABLE:
        # A mirror of which nobody says whether it is pinned is more often pinned than not.
        level = sure if not receiver.places & PINNED else POSSIBLE
        reason = "a copy into pageable memory waits although non_blocking"
        effects.append(effect(forms.COPY_TO_PAGEABLE_NONBLOCKING, source, reason, level=level, others=(receiver,)))
    elif receiver.strided:
        reason = "a strided pinned destination goes through a pageable temporary"
        effects.append(effect(forms.COPY_TO_STRIDED_PINNED_NONBLOCKING, source, reason, level=sure, others=(receiver,)))
    elif sure >= LIKELY:
        return replace(receiver, pending=True)
    return receiver


def foreach_copy(args: Args) -> Outcome:
    """`torch._foreach_copy_(destinations, sources, non_blocking=False)`."""
    destinations, sources = args.get(0, "self"), args.get(1, "src")
    into = tensor_within(destinations) if destinations is not None else None
    source = tensor_within(sources) if sources is not None else None
    if into is None or source is None:
        return HOST_RESULT
    copied = copy_(into, Args((source,), args.keywords))
    return Outcome(HOST_NUMBER, tuple(replace(told, times=0) for told in copied.effects) if copied is not None else ())


def pin_memory(receiver: Value, args: Args) -> Outcome | None:
    """`x.pin_memory()`: new page-locked memory, slow to get; of a device tensor it raises."""
    source = receiver if receiver.kinds & TENSOR else Value(kinds=TENSOR, places=PAGEABLE, strength=LIKELY)
    result = replace(derived(source, ndim=source.ndim, numel=source.numel, same=source.same), places=PINNED)
    if source.places == PINNED and source.strength == CERTAIN:
        return Outcome(result)
    return Outcome(replace(result, pending=False), (pinning(source),))


def pinning(source: Value) -> Effect:
    """The stall of getting page-locked memory: no wait for the device, and none where the allocator has some cached."""
    return Effect(
        forms.PIN_MEMORY, POSSIBLE, "new pinned memory takes milliseconds at times", source.why, params=source.params
    )
