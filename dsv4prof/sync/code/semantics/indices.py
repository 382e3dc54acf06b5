"""An index taken apart: numbers, slices, masks, index tensors of the device and of the host."""

from __future__ import annotations

import msgspec

from dsv4prof.sync.code.semantics.tell import on_device
from dsv4prof.sync.code.values import (
    ARRAY,
    CERTAIN,
    HOST,
    NONE,
    ON_DEVICE,
    POSSIBLE,
    SEQUENCE,
    SLICE,
    TENSOR,
    UNKNOWN,
    Value,
    constant,
)

_NO_BOUND = constant(None)


def slice_value(lower: Value | None, upper: Value | None, step: Value | None) -> Value:
    """The index `lower:upper:step`; an absent bound is None."""
    return Value(kinds=SLICE, strength=CERTAIN, items=(lower or _NO_BOUND, upper or _NO_BOUND, step or _NO_BOUND))


class Index(msgspec.Struct):
    """What an index is made of. `eaten`: dimensions of the receiver that it consumes, `made`: that it brings."""

    bounds: list[Value] = []
    zero_dim: list[Value] = []
    masks: list[Value] = []
    vectors: list[Value] = []
    host_vectors: list[Value] = []
    host_masks: list[Value] = []
    lists: list[Value] = []
    arrays: list[Value] = []
    unknown: bool = False
    numbers: int = 0
    slices: int = 0
    eaten: int = 0
    made: int = 0
    strided: bool = False
    whole: bool = False
    deep_masks: bool = False

    @property
    def advanced(self) -> bool:
        """Whether anything but numbers, slices and masks selects elements."""
        return bool(self.vectors or self.host_vectors or self.lists or self.arrays)

    @property
    def elements_only(self) -> bool:
        """Numbers alone: of a tensor of as many dimensions it is one element."""
        rest = self.slices or self.masks or self.host_masks or self.advanced or self.unknown or self.whole
        return not rest and self.numbers + len(self.zero_dim) > 0


def taken_apart(index: Value) -> Index:
    """The parts of an index."""
    parts = Index()
    if index.kinds == SEQUENCE and index.ref == "tuple":
        if index.items is None:
            parts.unknown = True
            return parts
        for item in index.items:
            take_item(parts, item)
        parts.strided = _gaps(index.items)
    else:
        take_item(parts, index)
        if index.kinds == SLICE:
            parts.strided = _gaps((index,))
    return parts


def _gaps(items: tuple[Value, ...]) -> bool:
    """Whether a view has gaps: a step, or less than a whole row of a later dimension."""
    for place, item in enumerate(items):
        if item.kinds != SLICE or item.items is None:
            if place and item.kinds == HOST and item.const is not Ellipsis:
                return True
            continue
        lower, upper, step = item.items
        if step.const is not None and step.const != 1:
            return True
        if place and (lower.const is not None or upper.const is not None):
            return True
    return False


def take_item(parts: Index, item: Value) -> None:
    kinds = item.kinds
    if kinds == HOST:
        if item.const is Ellipsis:
            parts.whole = True
        elif type(item.const) is bool:
            parts.made += 1
        else:
            parts.numbers += 1
            parts.eaten += 1
    elif kinds == SLICE:
        parts.slices += 1
        parts.eaten += 1
        parts.made += 1
        for bound in item.items or ():
            if on_device(bound):
                parts.bounds.append(bound)
    elif kinds == NONE:
        parts.made += 1
        parts.slices += 1
    elif kinds & TENSOR:
        _take_tensor(parts, item)
    elif kinds == ARRAY:
        if item.ndim == 0:
            parts.numbers += 1
        else:
            parts.arrays.append(item)
            parts.made = max(parts.made, 1)
        parts.eaten += 1
    elif kinds == SEQUENCE:
        parts.lists.append(item)
        parts.eaten += 1
        parts.made = max(parts.made, 1)
    else:
        parts.unknown = True


def _take_tensor(parts: Index, item: Value) -> None:
    if item.kinds & UNKNOWN and item.strength == POSSIBLE and item.dtype != "bool":
        parts.unknown = True
        return
    device = bool(item.places & ON_DEVICE)
    if item.dtype in ("bool", "uint8"):
        if device:
            (parts.zero_dim if item.ndim == 0 else parts.masks).append(item)
        else:
            parts.host_masks.append(item)
        parts.eaten += item.ndim if item.ndim is not None else 1
        parts.made += 1
        parts.deep_masks = parts.deep_masks or item.ndim is None
        return
    parts.eaten += 1
    if item.ndim == 0:
        if device:
            parts.zero_dim.append(item)
        else:
            parts.numbers += 1
        return
    (parts.vectors if device else parts.host_vectors).append(item)
    parts.made = max(parts.made, item.ndim if item.ndim is not None else 1)
