"""Reading and writing x[...].

A device tensor takes integers, slices and device index tensors without a word to the host. It asks for the number of a
0-dim index or a slice bound, counts a mask, uploads an index that lies on the host, and uploads a Python number that is
written to single elements.
"""

from __future__ import annotations

from msgspec.structs import replace

from dsv4prof.sync.code.effects import Effect, Outcome
from dsv4prof.sync.code.semantics import forms
from dsv4prof.sync.code.semantics.indices import Index, taken_apart
from dsv4prof.sync.code.semantics.reads import pending_read
from dsv4prof.sync.code.semantics.tell import all_params, derived, effect, on_device
from dsv4prof.sync.code.values import (
    ANYTHING,
    ARRAY,
    CERTAIN,
    HOST,
    HOST_NUMBER,
    LIKELY,
    MAPPING,
    NONE,
    ON_DEVICE,
    POSSIBLE,
    SEQUENCE,
    SLICE,
    TENSOR,
    UNKNOWN,
    Value,
    sequence,
)


def _dimensions(receiver: Value, parts: Index) -> int | None:
    if receiver.ndim is None or parts.unknown or parts.deep_masks or any(v.ndim is None for v in parts.vectors):
        # A mask or an index over the leading dimensions of a vector leaves a vector.
        return 1 if receiver.ndim == 1 and not parts.unknown and not parts.zero_dim and parts.made == 1 else None
    return max(receiver.ndim - parts.eaten + parts.made, 0)


def subscript(receiver: Value, index: Value) -> Outcome:
    """`receiver[index]` where it is read."""
    kinds = receiver.kinds
    if kinds & TENSOR:
        return _tensor_item(receiver, index)
    if kinds & SEQUENCE:
        return sequence_item(receiver, index)
    if kinds & MAPPING:
        return Outcome(receiver.element or ANYTHING)
    if kinds & ARRAY:
        return array_item(receiver, index)
    return _unknown_item(receiver, index)


def bound_effects(form: str, parts: Index) -> tuple[Effect, ...]:
    return tuple(effect(form, bound, "a slice bound is a device tensor") for bound in parts.bounds)


def _tensor_item(receiver: Value, index: Value) -> Outcome:
    parts = taken_apart(index)
    effects: tuple[Effect, ...] = bound_effects(forms.SLICE_BOUND, parts) if parts.bounds else ()
    if parts.zero_dim:
        effects += zero_dim_effects(parts, forms.INDEX_0DIM)
    if on_device(receiver):
        effects += _selected(receiver, parts)
    params = receiver.params | index.params if index.params else receiver.params
    ndim = _dimensions(receiver, parts)
    least = 0
    if ndim is None and not (parts.unknown or parts.masks or parts.host_masks):
        # Nobody writes an index for more dimensions than there are, or for none.
        least = max(receiver.least, parts.eaten, 1) - parts.eaten + parts.made
    empty = _is_empty(index)
    plain = not (parts.masks or parts.host_masks or parts.advanced)
    value = derived(
        receiver,
        ndim=ndim,
        numel=0 if empty else 1 if ndim == 0 else _length(receiver, index),
        strided=plain and (parts.strided or receiver.strided),
        params=params,
        least=least,
    )
    if not plain and value.pending:
        effects += pending_read(receiver)
    return Outcome(value, effects)


def _length(receiver: Value, index: Value) -> int | None:
    """How many elements a slice of a vector of known length takes."""
    if receiver.ndim != 1 or receiver.numel is None or index.kinds != SLICE:
        return None
    bounds = [bound.const for bound in index.items or ()]
    if not all(bound is None or type(bound) is int for bound in bounds) or bounds[2] == 0:
        return None
    return len(range(receiver.numel)[slice(*bounds)])


def _is_empty(index: Value) -> bool:
    """x[:0]."""
    return (
        index.kinds == SLICE
        and index.items is not None
        and index.items[1].const == 0
        and type(index.items[1].const) is int
    )


def zero_dim_effects(parts: Index, form: str) -> tuple[Effect, ...]:
    effects: tuple[Effect, ...] = ()
    for item in parts.zero_dim:
        of_bool = item.dtype == "bool"
        reason = "a 0-dim device tensor as an index is read"
        effects = (
            *effects,
            effect(forms.INDEX_0DIM_BOOL if of_bool and form == forms.INDEX_0DIM else form, item, reason),
        )
    return effects


def _beside(receiver: Value, item: Value) -> int:
    """As sure as both: that the receiver is on the device, and what the index is."""
    return min(standing(receiver), item.strength)


def standing(receiver: Value) -> int:
    """A receiver that is a tensor by its name alone, and is indexed as only tensors are, is one."""
    return max(receiver.strength, LIKELY) if receiver.kinds & UNKNOWN else receiver.strength


def _selected(receiver: Value, parts: Index) -> tuple[Effect, ...]:
    effects: list[Effect] = []
    for mask in parts.masks:
        if receiver.places & ~ON_DEVICE and receiver.strength < mask.strength and not receiver.places & ON_DEVICE:
            continue
        byte = mask.dtype == "uint8"
        level = min(_beside(receiver, mask), CERTAIN) if mask.strength else mask_by_name(receiver)
        raised = mask if mask.strength >= level else replace(mask, strength=level)
        form = forms.MASK_INDEX_UINT8 if byte else forms.MASK_INDEX
        effects.append(
            effect(form, raised, "a mask selects as many elements as it counts", level=level, others=(receiver,))
        )
    for mask in parts.host_masks:
        reason = "a host mask is counted and copied to the device"
        level = min(receiver.strength, mask.strength)
        effects.append(effect(forms.INDEX_BY_HOST_MASK, receiver, reason, level=level, others=(mask,)))
    return tuple(effects) + uploaded(
        receiver, parts, (forms.INDEX_BY_LIST, forms.INDEX_BY_ARRAY, forms.INDEX_BY_HOST_TENSOR)
    )


def mask_by_name(receiver: Value) -> int:
    """A mask by its name alone, as an index: nothing else is called a mask there, if the receiver is a tensor."""
    return LIKELY if receiver.strength >= LIKELY else POSSIBLE


def uploaded(receiver: Value, parts: Index, names: tuple[str, str, str]) -> tuple[Effect, ...]:
    effects: list[Effect] = []
    groups = (
        (names[0], parts.lists, "an index list is copied to the device"),
        (names[1], parts.arrays, "an index array is copied to the device"),
        (names[2], parts.host_vectors, "a host index tensor is copied to the device"),
    )
    for form, items, reason in groups:
        for item in items:
            if item.kinds == SEQUENCE and item.items == ():
                continue
            level = min(receiver.strength, item.strength if item.kinds & TENSOR else CERTAIN)
            effects.append(effect(form, receiver, reason, level=level, others=(item,)))
    return tuple(effects)


def sequence_item(receiver: Value, index: Value) -> Outcome:
    if index.kinds == SLICE:
        effects = tuple(
            effect(forms.HOST_SLICE_BOUND, bound, "a slice bound is a device tensor")
            for bound in index.items or ()
            if on_device(bound)
        )
        return Outcome(_sliced(receiver, index), effects)
    if on_device(index) and not (index.kinds & UNKNOWN and index.strength == POSSIBLE):
        reason = "a Python sequence asks a device tensor for its number"
        return Outcome(contents(receiver), (effect(forms.HOST_LIST_INDEX, index, reason),))
    if (
        receiver.items is not None
        and type(index.const) is int
        and -len(receiver.items) <= index.const < len(receiver.items)
    ):
        return Outcome(receiver.items[index.const])
    return Outcome(contents(receiver))


def _sliced(receiver: Value, index: Value) -> Value:
    bounds = [bound.const for bound in index.items or ()]
    if receiver.items is not None and all(bound is None or type(bound) is int for bound in bounds):
        return sequence(receiver.items[slice(*bounds)], receiver.ref)
    return replace(receiver, items=None, same="", total="")


def array_item(receiver: Value, index: Value) -> Outcome:
    parts = taken_apart(index)
    effects: tuple[Effect, ...] = bound_effects(forms.HOST_SLICE_BOUND, parts)
    if parts.zero_dim:
        effects += tuple(
            effect(forms.HOST_LIST_INDEX, item, "NumPy asks a device tensor for its number") for item in parts.zero_dim
        )
    ndim = _dimensions(receiver, parts)
    view = index.kinds == SLICE
    if receiver.pending and not view:
        effects += pending_read(receiver)
    if ndim == 0:
        return Outcome(HOST_NUMBER, effects)
    value = Value(
        kinds=ARRAY,
        strength=CERTAIN,
        dtype=receiver.dtype,
        ndim=ndim,
        params=receiver.params,
        pending=receiver.pending and view,
    )
    return Outcome(value, effects)


def _unknown_item(receiver: Value, index: Value) -> Outcome:
    """Of an unknown receiver only what holds for every container, and masks, which only tensors and arrays take."""
    if receiver.kinds & (HOST | NONE) and not receiver.kinds & UNKNOWN:
        return Outcome(ANYTHING)
    if not index.kinds & (TENSOR | SLICE | SEQUENCE):
        return Outcome(ANYTHING)
    parts = taken_apart(index)
    effects = bound_effects(forms.SLICE_BOUND, parts)
    effects += tuple(
        effect(forms.INDEX_0DIM, item, "a 0-dim device tensor as an index is read", level=LIKELY)
        for item in parts.zero_dim
    )
    found: Value = ANYTHING
    for mask in parts.masks:
        if mask.strength == POSSIBLE:
            continue
        reason = "a mask on the device selects as many elements as it counts"
        effects += (effect(forms.MASK_INDEX, mask, reason, level=LIKELY),)
        found = replace(derived(mask, dtype=""), strength=min(mask.strength, LIKELY))
    if parts.vectors and not parts.masks:
        # An index tensor on the device: the receiver is a tensor, and beside it.
        vector = parts.vectors[0]
        found = replace(derived(vector, dtype=""), strength=min(vector.strength, LIKELY))
    return Outcome(found, effects)


# Writing.


def contents(value: Value) -> Value:
    """What the elements of a tensor, an array or a container are."""
    if value.kinds & TENSOR:
        ndim = value.ndim - 1 if value.ndim else None
        return derived(value, ndim=ndim, numel=1 if ndim == 0 else None, params=all_params((value,)))
    if value.kinds & ARRAY:
        return HOST_NUMBER if value.ndim == 1 else Value(kinds=ARRAY | HOST, strength=CERTAIN)
    element = value.element
    if element is None:
        return ANYTHING
    if element.kinds & TENSOR and element.kinds & HOST and element.strength > POSSIBLE:
        # One of (tensor, number, number): which one is not known.
        return replace(element, kinds=element.kinds | UNKNOWN, strength=POSSIBLE)
    return element
