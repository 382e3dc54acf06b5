"""Attributes of tensors, arrays and torch's objects."""

from __future__ import annotations

from msgspec.structs import replace

from dsv4prof.sync.code.semantics.devices import same_memory
from dsv4prof.sync.code.semantics.listed import listed
from dsv4prof.sync.code.semantics.tell import derived
from dsv4prof.sync.code.values import (
    ARRAY,
    CERTAIN,
    DEVICE,
    DTYPE,
    HOST,
    HOST_NUMBER,
    LIKELY,
    NONE,
    ON_DEVICE,
    PAGEABLE,
    SEQUENCE,
    TENSOR,
    UNKNOWN,
    Value,
    Why,
    constant,
    sequence,
    sequence_of,
)

_HOST_FACTS = listed(
    "is_cuda is_cpu is_sparse is_leaf is_meta is_nested is_quantized requires_grad ndim itemsize nbytes names layout "
    "output_nr is_mps is_xpu is_npu is_hip retains_grad _version"
)
_VIEWS = listed("T mT H mH")
_SAME = listed("data real imag values_")
_SIZES = sequence_of(HOST_NUMBER, "tuple")
_GUESSED_DEVICE = Value(kinds=DEVICE, places=ON_DEVICE, strength=LIKELY, why=Why("the device of an unknown object"))
# Attributes of which the name says what they are, whoever has them.
_WHOEVER = {
    "shape": _SIZES,
    "ndim": HOST_NUMBER,
    "dtype": Value(kinds=DTYPE, strength=LIKELY),
    "device": _GUESSED_DEVICE,
    "is_cuda": HOST_NUMBER,
    "is_cpu": HOST_NUMBER,
    "requires_grad": HOST_NUMBER,
}


# torch.max(x, dim).values and the like: results that have names beside their places.
_NAMED_RESULTS = {"values": 0, "indices": 1, "min": 0, "max": 1, "eigenvalues": 0, "eigenvectors": 1, "Q": 0, "R": 1}


def attribute(receiver: Value, name: str) -> Value | None:
    """`receiver.name`; None when nothing is known of it, which leaves it to the interpreter and to conventions."""
    if receiver.kinds & TENSOR:
        return _of_tensor(receiver, name)
    if receiver.kinds & SEQUENCE and receiver.items is not None and name in _NAMED_RESULTS:
        place = _NAMED_RESULTS[name]
        return receiver.items[place] if place < len(receiver.items) else None
    if receiver.kinds & ARRAY:
        return _of_array(receiver, name)
    if receiver.kinds == DEVICE:
        return _of_device(receiver, name)
    if receiver.kinds & UNKNOWN or not receiver.kinds:
        return _WHOEVER.get(name)
    if receiver.kinds & HOST and name in ("real", "imag", "value", "name"):
        return replace(HOST_NUMBER, params=receiver.params)
    return None


def _of_tensor(receiver: Value, name: str) -> Value | None:
    if name == "shape":
        return sequence((HOST_NUMBER,) * receiver.ndim) if receiver.ndim is not None else _SIZES
    if name == "device":
        return same_memory(receiver)
    if name == "dtype":
        return Value(kinds=DTYPE, dtype=receiver.dtype, strength=receiver.strength)
    if name in _HOST_FACTS:
        return HOST_NUMBER
    if name in _VIEWS:
        return replace(receiver, kinds=TENSOR)
    if name in _SAME:
        return replace(receiver, kinds=TENSOR)
    if name == "grad":
        value = derived(receiver, ndim=receiver.ndim)
        return replace(value, kinds=TENSOR | NONE)
    return None


def _of_array(receiver: Value, name: str) -> Value | None:
    if name == "shape":
        return sequence((HOST_NUMBER,) * receiver.ndim) if receiver.ndim is not None else _SIZES
    if name in ("size", "ndim", "nbytes", "itemsize", "strides", "flags"):
        return HOST_NUMBER
    if name == "dtype":
        return Value(kinds=DTYPE, strength=CERTAIN, dtype=receiver.dtype)
    if name in ("T", "real", "imag", "flat"):
        return replace(receiver, kinds=ARRAY)
    return None


def _of_device(receiver: Value, name: str) -> Value | None:
    if name == "type":
        if receiver.strength == CERTAIN and receiver.places == PAGEABLE:
            return constant("cpu")
        return Value(kinds=HOST, strength=CERTAIN)
    if name == "index":
        return Value(kinds=HOST | NONE, strength=CERTAIN)
    return None
