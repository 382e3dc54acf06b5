"""Python's operators, iteration and unpacking over values."""

from __future__ import annotations

from msgspec.structs import replace

from dsv4prof.sync.code.effects import Effect, Outcome
from dsv4prof.sync.code.semantics import forms
from dsv4prof.sync.code.semantics.indexing import contents
from dsv4prof.sync.code.semantics.reads import format_value, pending_read, truth
from dsv4prof.sync.code.semantics.shapes import combined
from dsv4prof.sync.code.semantics.tell import derived, device_within, effect, on_device
from dsv4prof.sync.code.values import (
    ANYTHING,
    ARRAY,
    CERTAIN,
    HOST,
    HOST_NUMBER,
    MAPPING,
    NONE,
    NOTHING,
    POSSIBLE,
    SEQUENCE,
    TENSOR,
    UNKNOWN,
    Value,
    bounds,
    sequence,
    sequence_of,
)

__all__ = ["binary", "compare", "format_value", "iterate", "truth", "unary", "unpack"]

_EMPTY = Outcome()
_ARITHMETIC = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "<<": lambda a, b: a << b if b < 64 else NOTHING,
    ">>": lambda a, b: a >> b,
    "**": lambda a, b: a**b if abs(a) < 1 << 16 and 0 <= b < 8 else NOTHING,
}


def binary(op: str, left: Value, right: Value) -> Outcome:
    """`left op right` for `+ - * / // % ** @ << >> & | ^`."""
    kinds = left.kinds | right.kinds
    if kinds == HOST:
        return Outcome(_numbers(op, left, right))
    if op == "*" and (left.total or right.total) and not kinds & ~(HOST | UNKNOWN):
        total = left.total if bounds(left) else right.total if bounds(right) else ""
        return Outcome(Value(kinds=UNKNOWN | HOST, params=left.params | right.params, total=total))
    if op == "%" and left.kinds == HOST and left.dtype != "int" and isinstance(left.const, str):
        return Outcome(HOST_NUMBER, format_value(right, forms.FORMAT_PERCENT))
    if op == "*" and TENSOR in (left.kinds, right.kinds) and any(isinstance(each.const, str) for each in (left, right)):
        return Outcome(HOST_NUMBER, _repeats(left if left.kinds == TENSOR else right, "text"))
    if op in ("*", "+") and kinds & SEQUENCE and (left.kinds == SEQUENCE or right.kinds == SEQUENCE):
        return _sequences(op, left, right)
    if kinds & TENSOR:
        return Outcome(_tensors(op, left, right), _through(left) + _through(right))
    if kinds & ARRAY and not kinds & (UNKNOWN | SEQUENCE):
        return Outcome(Value(kinds=ARRAY, strength=CERTAIN, ndim=left.ndim if left.kinds == ARRAY else right.ndim))
    if (left.kinds == HOST and right.kinds == HOST | UNKNOWN) or (right.kinds == HOST and left.kinds == HOST | UNKNOWN):
        return Outcome(Value(kinds=UNKNOWN | HOST, params=left.params | right.params))
    params = left.params | right.params
    return Outcome(Value(params=params)) if params else _EMPTY


def _through(value: Value) -> tuple[Effect, ...]:
    return pending_read(value) if value.pending and not on_device(value) else ()


def _numbers(op: str, left: Value, right: Value) -> Value:
    a, b = left.const, right.const
    params = left.params | right.params
    if type(a) is int and type(b) is int and op in _ARITHMETIC:
        if (b < 0 and op in ("<<", ">>")) or (b == 0 and op in ("//", "%")):
            return HOST_NUMBER
        return Value(kinds=HOST, const=_ARITHMETIC[op](a, b), strength=CERTAIN, dtype="int", params=params)
    dtype = "float" if op == "/" or "float" in (left.dtype, right.dtype) else ""
    if op == "*" and (bounds(left) or bounds(right)):
        # The longest length times the number of them: a padded size.
        total = left.total if bounds(left) else right.total
        return Value(kinds=HOST, strength=CERTAIN, dtype=dtype, params=params, total=total)
    return Value(kinds=HOST, strength=CERTAIN, dtype=dtype, params=params) if params or dtype else HOST_NUMBER


def _tensors(op: str, left: Value, right: Value) -> Value:
    receiver, other = (left, right) if left.kinds & TENSOR else (right, left)
    if op == "@":
        value = combined(receiver, (other,))
        return replace(value, ndim=None, numel=None)
    value = combined(receiver, (other,), "float" if op == "/" else None)
    # An unknown operand: it may be a tensor of more dimensions.
    if other.kinds & UNKNOWN and not other.kinds & (TENSOR | HOST):
        value = replace(value, ndim=None if value.ndim == 0 else value.ndim)
    if left.params or right.params:
        value = replace(value, params=left.params | right.params)
    if receiver.kinds & UNKNOWN and receiver.strength == POSSIBLE and not other.kinds & TENSOR:
        return replace(value, kinds=UNKNOWN | TENSOR)
    return value


def _sequences(op: str, left: Value, right: Value) -> Outcome:
    held, other = (left, right) if left.kinds == SEQUENCE else (right, left)
    if op == "+":
        if left.kinds == SEQUENCE and right.kinds == SEQUENCE:
            if left.items is not None and right.items is not None:
                return Outcome(sequence(left.items + right.items, left.ref))
            return Outcome(sequence_of(_either(contents(left), contents(right)), left.ref))
        if other.kinds & TENSOR and not held.kinds & TENSOR:
            return Outcome(_tensors(op, left, right))
        return Outcome(held if other.kinds == UNKNOWN else ANYTHING)
    if on_device(other) and not (other.kinds & UNKNOWN and other.strength == POSSIBLE):
        return Outcome(replace(held, items=None), _repeats(other, "list"))
    filled = "fill" if held.items is not None and len(held.items) == 1 else held.ref
    items = held.items * other.const if held.items is not None and _small(other.const) else None
    return Outcome(replace(held, items=items, ref=filled if held.ref == "list" else held.ref, same="", total=""))


def _repeats(count: Value, what: str) -> tuple[Effect, ...]:
    reason = f"the length of the {what} is a device tensor"
    return (effect(forms.LIST_REPEAT, count, reason),) if on_device(count) else ()


def _small(count: object) -> bool:
    return type(count) is int and 0 <= count <= 16


def _either(left: Value, right: Value) -> Value:
    if left.kinds == UNKNOWN:
        return right
    return left if right.kinds == UNKNOWN or left == right else replace(left, kinds=left.kinds | right.kinds)


def compare(op: str, left: Value, right: Value) -> Outcome:
    """`left op right` for `== != < <= > >= in not in is is not`."""
    if op == "is" or op == "is not":
        return Outcome(HOST_NUMBER)
    if op == "in" or op == "not in":
        return Outcome(HOST_NUMBER, _contained(left, right))
    kinds = left.kinds | right.kinds
    if kinds & TENSOR and not (left.kinds == NONE or right.kinds == NONE):
        receiver, other = (left, right) if left.kinds & TENSOR else (right, left)
        if isinstance(other.const, str):
            return Outcome(HOST_NUMBER)
        value = combined(receiver, (other,), "bool")
        if receiver.kinds & UNKNOWN and receiver.strength == POSSIBLE:
            value = replace(value, kinds=UNKNOWN | TENSOR)
        return Outcome(value, _through(left) + _through(right))
    if kinds & ARRAY:
        return Outcome(Value(kinds=ARRAY, strength=CERTAIN, dtype="bool"))
    if kinds & (HOST | NONE | SEQUENCE | MAPPING) and not kinds & UNKNOWN:
        return Outcome(HOST_NUMBER)
    params = left.params | right.params
    return Outcome(Value(params=params)) if params else _EMPTY


def _contained(left: Value, right: Value) -> tuple[Effect, ...]:
    """`x in list` compares and asks for the truth of each comparison; `x in tensor` asks once."""
    if right.kinds & TENSOR and on_device(right) and not right.kinds & UNKNOWN:
        return (effect(forms.TRUTH_CONTAINS, right, "whether a device tensor holds a value is read"),)
    if right.kinds & SEQUENCE and right.ref != "set":
        source = left if on_device(left) else device_within(right)
        if source is not None and not (source.kinds & UNKNOWN and source.strength == POSSIBLE):
            return (effect(forms.TRUTH_CONTAINS, source, "each comparison with a device tensor is read", times=0),)
    return ()


def unary(op: str, value: Value) -> Outcome:
    """`-x`, `+x`, `~x`, `not x`."""
    if op == "not":
        return Outcome(HOST_NUMBER, truth(value, "not"))
    if value.kinds & TENSOR:
        return Outcome(derived(value, ndim=value.ndim, numel=value.numel))
    const = value.const
    if value.kinds == HOST and type(const) in (int, float):
        number = -const if op == "-" else ~const if op == "~" and type(const) is int else const
        return Outcome(replace(value, const=number, total=""))
    if value.kinds & (HOST | ARRAY):
        return Outcome(replace(value, const=NOTHING, total="", same=""))
    return _EMPTY


def iterate(value: Value) -> Outcome:
    """What `for e in value` binds: a tensor is unbound into views, and nothing is read."""
    return Outcome(contents(value))


def unpack(value: Value, count: int) -> Outcome:
    """`a, b = value`: a tuple of `count` items."""
    if value.items is not None and len(value.items) == count:
        return Outcome(sequence(value.items))
    return Outcome(sequence((contents(value),) * count))
