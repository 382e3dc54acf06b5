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
# torch.device, or a value made from one; `places` says of which memory it speaks (and of text that names a device).
DEVICE = 512
DTYPE = 1024
# A slice object: `items` are lower, upper and step.
SLICE = 2048

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

    `dtype` is "bool", "uint8", "int", "float" or "" (not known; of a DTYPE the type that it names). `numel` is the
    number of elements where it is known. `strided`: a view with gaps. `pending`: a host copy made without waiting,
    and nobody has waited since (the interpreter clears it with `settled`). `least`: where `ndim` is not known, at
    least so many dimensions. Of a SEQUENCE `ref` says "list",
    "tuple", "set", "range" or "". `same` names the numbers that a value holds (`lens@12`): a tensor made from a
    list holds the same. `total` names the numbers whose exact sum a host number is (with a mark before it, as
    `bounded` puts it, what is their number, their largest or a product of one: no sum). `params` are the parameters of
    the function under analysis whose facts (or lack of facts) decided the value.
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
    numel: int | None = None
    strided: bool = False
    pending: bool = False
    least: int = 0

    @property
    def may_be_on_device(self) -> bool:
        return bool(self.kinds & TENSOR and self.places & ON_DEVICE)


ANYTHING = Value()
NO_PARAMS: frozenset[str] = frozenset()


# Text that names a device: "cuda:0" speaks of the memory that torch.device("cuda:0") does.
_DEVICE_NAMES = {
    "cpu": PAGEABLE,
    "meta": PAGEABLE,
    "cuda": ON_DEVICE,
    "hip": ON_DEVICE,
    "npu": ON_DEVICE,
    "xpu": ON_DEVICE,
    "musa": ON_DEVICE,
    "mps": ON_DEVICE,
    "hpu": ON_DEVICE,
    "tpu": ON_DEVICE,
}


def constant(value: object) -> Value:
    """A literal: None, bool, int, float, complex, str, bytes."""
    if value.__class__ is str:
        places = _DEVICE_NAMES.get(value.partition(":")[0], 0)
        return Value(kinds=HOST, const=value, strength=CERTAIN, places=places)
    return Value(kinds=NONE if value is None else HOST, const=value, strength=CERTAIN)


HOST_NUMBER = Value(kinds=HOST, strength=CERTAIN)


def sequence(items: tuple[Value, ...], ref: str = "tuple") -> Value:
    """A tuple, list or set written out, or anything else whose every element is known."""
    return Value(
        kinds=SEQUENCE, items=items, element=join_all(list(items)) if items else None, ref=ref, strength=CERTAIN
    )


def sequence_of(element: Value, ref: str = "list", *, same: str = "") -> Value:
    """A list, tuple, set or generator of unknown length."""
    return Value(kinds=SEQUENCE, element=element, ref=ref, strength=element.strength, same=same, params=element.params)


def mapping_of(element: Value) -> Value:
    """A dict whose values are `element`."""
    return Value(kinds=MAPPING, element=element, strength=element.strength, params=element.params)


def settled(value: Value) -> Value:
    """The value after a wait: host copies on the way have arrived."""
    return msgspec.structs.replace(value, pending=False) if value.pending else value


def declared(value: Value, line: int, path: str) -> Value:
    """The value with the place of the annotation that says it, where its story has none yet."""
    why = value.why
    if why is None or why.line or why.before is not None:
        return value
    return msgspec.structs.replace(value, why=Why(why.text, line, path))


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


_BOUND = "no sum of "


def bounded(number: Value, numbers: Value) -> Value:
    """A host number that is the length of `numbers`, or their largest. `[n] * k` is told apart: n * k is its sum."""
    told = numbers.same and numbers.ref != "fill"
    return msgspec.structs.replace(number, total=_BOUND + numbers.same) if told else number


def bounds(number: Value) -> str:
    """The name of the numbers of which the value is a length, a largest, or a product of one; else ""."""
    return number.total.removeprefix(_BOUND) if number.total.startswith(_BOUND) else ""


def join(left: Value, right: Value) -> Value:
    """What holds where either may arrive.

    A tensor on the device on one path and a host copy on the other keeps both places and the device's strength: the
    path with the device is taken at times. So where both speak of the device, the stronger counts.
    """
    if left is right or (type(left.const) is type(right.const) and left == right):
        return left
    first, second = _speaking(left, right)
    return Value(
        kinds=left.kinds | right.kinds,
        places=left.places | right.places,
        strength=first.strength if first.may_be_on_device else min(first.strength, second.strength),
        dtype=first.dtype if first.dtype == second.dtype else "",
        ndim=first.ndim if first.ndim == second.ndim else None,
        const=left.const if _same_constant(left.const, right.const) else NOTHING,
        element=_joined_elements(left.element, right.element),
        items=_joined_items(left, right),
        ref=_joined_ref(left, right),
        same=left.same if left.same == right.same else "",
        total=left.total if left.total == right.total else "",
        why=first.why,
        params=left.params | right.params if left.params or right.params else NO_PARAMS,
        numel=first.numel if first.numel == second.numel else None,
        strided=left.strided or right.strided,
        pending=left.pending or right.pending,
        least=min(first.least, second.least),
    )


def _speaking(left: Value, right: Value) -> tuple[Value, Value]:
    """The two values whose facts the join has to agree with: a tensor alone speaks for itself, the surer one first."""
    if not left.kinds & TENSOR or not right.kinds & TENSOR:
        if left.kinds & TENSOR:
            return left, left
        return (right, right) if right.kinds & TENSOR else (left, right)
    if left.may_be_on_device and (not right.may_be_on_device or left.strength >= right.strength):
        return left, right
    return (right, left) if right.may_be_on_device else (left, right)


def _joined_ref(left: Value, right: Value) -> str:
    if left.ref == right.ref:
        return left.ref
    # Beside None a tuple is a tuple, and a class the class.
    if (left.kinds | right.kinds) & (OBJECT | CALLABLE) or not left.ref or not right.ref:
        return left.ref or right.ref
    return ""


def join_all(values: list[Value]) -> Value:
    """The join of all; ANYTHING of none."""
    if not values:
        return ANYTHING
    result = values[0]
    for value in values[1:]:
        result = join(result, value)
    return result


def _same_constant(left: object, right: object) -> bool:
    return left is not NOTHING and right is not NOTHING and type(left) is type(right) and left == right


def _joined_elements(left: Value | None, right: Value | None) -> Value | None:
    return join(left, right) if left is not None and right is not None else left or right


def _joined_items(left: Value, right: Value) -> tuple[Value, ...] | None:
    """Items one by one. Beside None, or a sequence of which nothing is known, those of the other stay."""
    if left.items is None or right.items is None:
        known, other = (left, right) if left.items is not None else (right, left)
        bare = other.element is None or not other.kinds & (SEQUENCE | MAPPING)
        return known.items if known.items is not None and bare else None
    if len(left.items) != len(right.items):
        return None
    return tuple(join(a, b) for a, b in zip(left.items, right.items, strict=True))
