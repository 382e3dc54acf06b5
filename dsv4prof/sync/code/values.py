"""What is known of a value without running anything: its kind, and of a tensor where it lives and how sure that is.

A value is a point of a lattice: `join` of two values is what holds where either may arrive. Kinds and places are bit
sets, because a name can hold a tensor on one path and None, or a host copy, on another.
"""

from __future__ import annotations

from typing import Any

import msgspec

# Kinds. UNKNOWN says that anything may arrive; beside other bits, that something unknown may arrive as well.
UNKNOWN = 1
NONE = 2
# A Python number, bool, string or bytes: known to the host.
HOST = 4
TENSOR = 8
# A NumPy array or scalar: always host memory.
ARRAY = 16
# list, tuple, set, range, generator: `element`, and `items` where the length is known.
SEQUENCE = 32
# dict: `element` is what its values are.
MAPPING = 64
# An instance of the class `ref`.
OBJECT = 128
# A function, class, method or module with the dotted name `ref`.
CALLABLE = 256
# torch.device, or a value made from one; `places` says of which memory it speaks.
DEVICE = 512
DTYPE = 1024

# Places of a tensor.
PAGEABLE = 1
PINNED = 2
ON_DEVICE = 4
HOST_PLACES = PAGEABLE | PINNED

# How sure a claim is. `certain`: the source says so. `likely`: a convention of the field says so (an annotation
# torch.Tensor without a host mark in serving code). `possible`: nothing speaks against it.
POSSIBLE = 0
LIKELY = 1
CERTAIN = 2
LEVELS = ("possible", "likely", "certain")


class _Nothing:
    def __repr__(self) -> str:
        return "NOTHING"


NOTHING: Any = _Nothing()
"""No constant is known. (None is a constant.)"""


class Why(msgspec.Struct, frozen=True):
    """One step of an inference, and the step before it: `device= given`, line 12, from ..."""

    text: str
    line: int = 0
    path: str = ""
    before: Why | None = None

    def chain(self) -> list[Why]:
        """First step first."""
        steps: list[Why] = []
        step: Why | None = self
        while step is not None:
            steps.append(step)
            step = step.before
        return steps[::-1]


class Value(msgspec.Struct, frozen=True):
    """See the module. Fields that say nothing about `kinds` have their defaults.

    `dtype` is "bool", "int", "float" or "" (not known). `same` names the numbers that a value holds (`lens@12`): a
    tensor made from a list holds the same. `total` names the numbers whose exact sum a host number is. `params` are the
    parameters of the function under analysis whose facts (or lack of facts) decided the value.
    """

    kinds: int = UNKNOWN
    places: int = 0
    strength: int = POSSIBLE
    dtype: str = ""
    ndim: int | None = None
    const: Any = NOTHING
    element: Value | None = None
    items: tuple[Value, ...] | None = None
    ref: str = ""
    same: str = ""
    total: str = ""
    why: Why | None = None
    params: frozenset[str] = frozenset()

    @property
    def may_be_tensor(self) -> bool:
        return bool(self.kinds & TENSOR)

    @property
    def may_be_on_device(self) -> bool:
        return bool(self.kinds & TENSOR and self.places & ON_DEVICE)

    @property
    def may_be_on_host(self) -> bool:
        return bool(self.kinds & TENSOR and self.places & HOST_PLACES)


ANYTHING = Value()
NO_PARAMS: frozenset[str] = frozenset()


def constant(value: object) -> Value:
    """A literal: None, bool, int, float, complex, str, bytes."""
    return Value(kinds=NONE if value is None else HOST, const=value, strength=CERTAIN)


HOST_NUMBER = Value(kinds=HOST, strength=CERTAIN)


def tensor(
    places: int,
    strength: int,
    why: Why | None = None,
    *,
    dtype: str = "",
    ndim: int | None = None,
    same: str = "",
    params: frozenset[str] = NO_PARAMS,
) -> Value:
    """A tensor in `places`, as sure as `strength`."""
    return Value(
        kinds=TENSOR, places=places, strength=strength, dtype=dtype, ndim=ndim, same=same, why=why, params=params
    )


def join(left: Value, right: Value) -> Value:
    """What holds where either may arrive. The weaker strength counts where both speak of the device.

    A tensor on the device on one path and a host copy on the other keeps both places and the device's strength: the
    path with the device is taken at times.
    """
    if left is right or left == right:
        return left
    kinds = left.kinds | right.kinds
    device = [value for value in (left, right) if value.may_be_on_device]
    tensors = [value for value in (left, right) if value.kinds & TENSOR]
    speaking = device or tensors or [left, right]
    return Value(
        kinds=kinds,
        places=left.places | right.places,
        strength=min(value.strength for value in speaking),
        dtype=_agreed([value.dtype for value in tensors or speaking], ""),
        ndim=_agreed([value.ndim for value in tensors or speaking], None),
        const=left.const if _same_constant(left.const, right.const) else NOTHING,
        element=_joined_elements(left.element, right.element),
        items=_joined_items(left.items, right.items),
        ref=left.ref if left.ref == right.ref else (left.ref or right.ref if kinds & (OBJECT | CALLABLE) else ""),
        same=left.same if left.same == right.same else "",
        total=left.total if left.total == right.total else "",
        why=speaking[0].why,
        params=left.params | right.params,
    )


def join_all(values: list[Value]) -> Value:
    """The join of all; ANYTHING of none."""
    if not values:
        return ANYTHING
    result = values[0]
    for value in values[1:]:
        result = join(result, value)
    return result


def _agreed(values: list[Any], otherwise: Any) -> Any:
    return values[0] if all(value == values[0] for value in values) else otherwise


def _same_constant(left: object, right: object) -> bool:
    return left is not NOTHING and right is not NOTHING and type(left) is type(right) and left == right


def _joined_elements(left: Value | None, right: Value | None) -> Value | None:
    return join(left, right) if left is not None and right is not None else left or right


def _joined_items(left: tuple[Value, ...] | None, right: tuple[Value, ...] | None) -> tuple[Value, ...] | None:
    if left is None or right is None or len(left) != len(right):
        return None
    return tuple(join(a, b) for a, b in zip(left, right, strict=True))
