"""What a rule may ask of an operator's arguments without reading a tensor's values."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from dsv4prof.sync.runtime.calls import OpCall


def argument(call: OpCall, place: int, name: str, default: Any = None) -> Any:
    """An argument by place or by name; `default` where the program gave none."""
    if place < len(call.args):
        return call.args[place]
    return call.kwargs.get(name, default)


def is_tensor(value: Any) -> bool:
    return hasattr(value, "untyped_storage") and hasattr(value, "dtype")


def tensors_in(value: Any) -> Iterator[Any]:
    """The tensors of an argument, also within lists."""
    if is_tensor(value):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors_in(item)


def on_device(call: OpCall, value: Any) -> bool:
    return is_tensor(value) and call.place_of(value) == "device"


def on_host(call: OpCall, value: Any) -> bool:
    return is_tensor(value) and call.place_of(value) != "device"


def is_mask(index: Any) -> bool:
    """Whether an index is a mask: torch turns it into positions, and their number is data."""
    return str(index.dtype) in ("torch.bool", "torch.uint8")


def nbytes(tensor: Any) -> int:
    return int(tensor.numel()) * int(tensor.dtype.itemsize)


def is_dense(tensor: Any) -> bool:
    """Whether a tensor's elements fill their memory without gaps or overlaps, in any order of dimensions."""
    pairs = sorted((stride, size) for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if size != 1)
    expected = 1
    for stride, size in pairs:
        if stride != expected:
            return False
        expected *= size
    return True


def same_layout(left: Any, right: Any) -> bool:
    """Whether one flat copy of bytes moves one tensor into the other."""
    if tuple(left.shape) != tuple(right.shape) or not (is_dense(left) and is_dense(right)):
        return False
    strides = zip(left.shape, left.stride(), right.stride(), strict=True)
    return all(size == 1 or one == other for size, one, other in strides)


def same_values(left: Any, right: Any) -> bool:
    """Whether two tensors are the same elements of the same memory, told without reading them."""
    if left is right:
        return True
    try:
        return (
            left.data_ptr() == right.data_ptr() != 0
            and left.dtype == right.dtype
            and tuple(left.shape) == tuple(right.shape)
            and tuple(left.stride()) == tuple(right.stride())
        )
    except (RuntimeError, NotImplementedError):
        # Tensors without memory of their own (fake, sparse) have no address.
        return False


def product(sizes: Sequence[int]) -> int:
    return math.prod(int(size) for size in sizes)
