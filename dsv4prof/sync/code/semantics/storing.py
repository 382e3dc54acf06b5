"""Writing x[...] = value.

A number behind a mask or on a slice is filled in by a kernel; on single elements, or through an index tensor, it is
copied to the device first. A tensor behind a mask makes torch count the mask.
"""

from __future__ import annotations

from msgspec.structs import replace

from dsv4prof.sync.code.effects import Args, Effect, Outcome
from dsv4prof.sync.code.semantics import forms
from dsv4prof.sync.code.semantics.indexing import (
    array_item,
    bound_effects,
    mask_by_name,
    sequence_item,
    standing,
    uploaded,
    zero_dim_effects,
)
from dsv4prof.sync.code.semantics.indices import Index, take_item, taken_apart
from dsv4prof.sync.code.semantics.tell import effect, on_device
from dsv4prof.sync.code.values import (
    ANYTHING,
    ARRAY,
    CERTAIN,
    HOST,
    LIKELY,
    MAPPING,
    ON_DEVICE,
    POSSIBLE,
    SEQUENCE,
    SLICE,
    TENSOR,
    UNKNOWN,
    Value,
)


def store_subscript(receiver: Value, index: Value, value: Value, augmented: bool = False) -> Outcome:
    """`receiver[index] = value`, or with `augmented` the whole of `receiver[index] += value`."""
    if receiver.kinds & TENSOR:
        return Outcome(ANYTHING, _tensor_store(receiver, index, value, augmented))
    if receiver.kinds & SEQUENCE:
        return Outcome(ANYTHING, sequence_item(receiver, index).effects)
    if receiver.kinds & ARRAY:
        return Outcome(ANYTHING, _array_store(receiver, index, value))
    if receiver.kinds & MAPPING or not receiver.kinds & UNKNOWN:
        return Outcome(ANYTHING)
    return Outcome(ANYTHING, _unknown_store(index, value, augmented))


def _array_store(receiver: Value, index: Value, value: Value) -> tuple[Effect, ...]:
    effects = array_item(receiver, index).effects
    if on_device(value) and value.ndim == 0:
        effects += (effect(forms.SCALAR_CONVERSION, value, "NumPy asks a device tensor for its number"),)
    return effects


def _tensor_store(receiver: Value, index: Value, value: Value, augmented: bool) -> tuple[Effect, ...]:
    parts = taken_apart(index)
    effects = bound_effects(forms.ASSIGN_SLICE_BOUND, parts)
    if parts.zero_dim:
        effects += zero_dim_effects(parts, forms.ASSIGN_INDEX_0DIM)
    if receiver.places & ~ON_DEVICE and on_device(value):
        effects += _to_host(receiver, value)
    if not on_device(receiver):
        return effects
    effects += uploaded(receiver, parts, (forms.ASSIGN_BY_LIST, forms.ASSIGN_BY_LIST, forms.INDEX_BY_HOST_TENSOR))
    if parts.masks:
        return effects + masked_store(receiver, parts.masks, value, augmented)
    if augmented:
        # The right side is computed on the device, so what is written is there already.
        return effects
    return effects + _written(receiver, parts, value)


def _to_host(receiver: Value, value: Value) -> tuple[Effect, ...]:
    reason = "a device tensor is copied into host memory, blocking"
    if receiver.places & ON_DEVICE:
        return (effect(forms.ASSIGN_TO_HOST, value, reason, level=POSSIBLE, others=(receiver,)),)
    return (effect(forms.ASSIGN_TO_HOST, value, reason, level=receiver.strength, others=(receiver,)),)


def is_host_scalar(value: Value) -> bool:
    """A Python number, or a host tensor of no dimension."""
    if value.kinds & TENSOR:
        return not value.places & ON_DEVICE and value.ndim == 0
    return value.kinds == HOST


def masked_store(receiver: Value, masks: list[Value], value: Value, augmented: bool) -> tuple[Effect, ...]:
    """A number behind one mask is a masked_fill_; anything else counts the mask."""
    mask = masks[0]
    level = min(standing(receiver), mask.strength) if mask.strength else mask_by_name(receiver)
    raised = mask if mask.strength >= level else replace(mask, strength=level)
    others = (receiver, value)
    if augmented:
        reason = "a mask is counted to read the elements, and again to write them"
        return (effect(forms.MASK_AUGMENTED_ASSIGN, raised, reason, level=level, times=2, others=others),)
    if is_host_scalar(value):
        if len(masks) == 1:
            return ()
        reason = "two masks are counted, whatever is written"
        return (effect(forms.MASK_ASSIGN_TWO_MASKS, raised, reason, level=level, others=others),)
    if not value.kinds & TENSOR:
        # A name of which nothing is known is more often a number than a tensor.
        level = POSSIBLE
    reason = "the mask is counted, because what is written is no Python number"
    return (effect(forms.MASK_ASSIGN, raised, reason, level=level, others=others),)


def _written(receiver: Value, parts: Index, value: Value) -> tuple[Effect, ...]:
    if value.kinds & TENSOR and not value.places & ON_DEVICE and value.ndim != 0:
        level = min(receiver.strength, value.strength)
        if value.ndim is None:
            level = min(level, LIKELY)
        reason = "a host tensor is copied to the device, blocking"
        return (effect(forms.ASSIGN_FROM_HOST, receiver, reason, level=level, others=(value,)),)
    if not is_host_scalar(value):
        if value.kinds & HOST and not value.kinds & TENSOR and parts.elements_only and receiver.ndim == parts.eaten:
            reason = "a number that is written to an element is copied to the device"
            return (effect(forms.ASSIGN_ELEMENT_NUMBER, receiver, reason, level=POSSIBLE, others=(value,)),)
        return ()
    if parts.advanced:
        reason = "a number that is written through an index tensor is copied to the device"
        return (effect(forms.ASSIGN_INDEX_NUMBER, receiver, reason, others=(value,)),)
    if not parts.elements_only:
        return ()
    return _element(receiver, parts, value)


def _element(receiver: Value, parts: Index, value: Value) -> tuple[Effect, ...]:
    count = parts.numbers + len(parts.zero_dim)
    if (receiver.least if receiver.ndim is None else receiver.ndim) > count:
        return ()
    reason = "a number that is written to one element is copied to the device"
    level = CERTAIN
    if receiver.ndim is None:
        level = LIKELY
        reason = (
            "a number that is written to one element, if the tensor has no more dimensions, is copied to the device"
        )
    plain = receiver.kinds == TENSOR and value.kinds == HOST and not parts.zero_dim
    facts = {"receiver": "tensor"} if plain and receiver.strength == CERTAIN else {}
    return (effect(forms.ASSIGN_ELEMENT_NUMBER, receiver, reason, level=level, others=(value,), facts=facts),)


def _unknown_store(index: Value, value: Value, augmented: bool) -> tuple[Effect, ...]:
    if not index.kinds & (TENSOR | SLICE | SEQUENCE):
        return ()
    parts = taken_apart(index)
    effects = bound_effects(forms.ASSIGN_SLICE_BOUND, parts)
    for mask in parts.masks:
        if mask.strength == POSSIBLE:
            continue
        if augmented or on_device(value):
            form = forms.MASK_AUGMENTED_ASSIGN if augmented else forms.MASK_ASSIGN
            reason = "a mask on the device is counted, because what is written is no Python number"
            effects += (effect(form, mask, reason, level=LIKELY, times=2 if augmented else 1, others=(value,)),)
    return effects


def index_put(receiver: Value, args: Args) -> Outcome:
    """`x.index_put_(indices, value, accumulate=False)`."""
    indices, value = args.get(0, "indices"), args.get(1, "values")
    if indices is None or value is None or not on_device(receiver):
        return Outcome(receiver)
    parts = Index()
    for item in indices.items or ():
        take_item(parts, item)
    effects = uploaded(receiver, parts, (forms.INDEX_BY_LIST, forms.INDEX_BY_ARRAY, forms.INDEX_BY_HOST_TENSOR))
    accumulate = args.get(2, "accumulate")
    adds = accumulate is not None and accumulate.const is not False
    if parts.masks and (adds or not is_host_scalar(value)):
        mask = parts.masks[0]
        effects += (effect(forms.INDEX_PUT_MASK, mask, "the mask is counted", others=(receiver, value)),)
    elif not parts.masks and value.kinds & TENSOR and not value.places & ON_DEVICE:
        reason = "a host tensor is copied to the device"
        effects += (effect(forms.INDEX_PUT_HOST_VALUE, receiver, reason, level=value.strength, others=(value,)),)
    return Outcome(replace(receiver, same="", total=""), effects)
