"""Numbers of a tensor that the host asks for: item, tolist, conversions, Python's truth, and text made of a tensor."""

from __future__ import annotations

from msgspec.structs import replace

from dsv4prof.sync.code.effects import Args, Effect, Outcome
from dsv4prof.sync.code.semantics import forms
from dsv4prof.sync.code.semantics.tell import device_within, effect, on_device
from dsv4prof.sync.code.values import (
    ARRAY,
    CERTAIN,
    HOST,
    HOST_NUMBER,
    LIKELY,
    MAPPING,
    POSSIBLE,
    SEQUENCE,
    TENSOR,
    UNKNOWN,
    Value,
    sequence_of,
)

_NOT_KNOWN = "the receiver is not known"


def by_name_alone(value: Value) -> bool:
    """Whether nothing but its name says that the value is a tensor."""
    return bool(value.kinds & UNKNOWN and value.strength == POSSIBLE)


def pending_read(value: Value) -> tuple[Effect, ...]:
    """The hazard of reading a copy that was started without waiting, and for which nobody has waited."""
    if not value.pending or not value.kinds & (TENSOR | ARRAY):
        return ()
    return (
        Effect(
            forms.NONBLOCKING_COPY_READ_EARLY,
            min(LIKELY, value.strength),
            "the copy was started with non_blocking=True, and nothing waited for it since",
            value.why,
            params=value.params,
        ),
    )


def reading(form: str, value: Value, reason: str, *, times: int = 1, level: int = CERTAIN) -> tuple[Effect, ...]:
    """The host reads `value` through `form`: a wait where it may be on the device, a hazard where it is on its way."""
    if value.pending:
        hazard = pending_read(value)
        return (effect(form, value, reason, times=times, level=level), *hazard) if on_device(value) else hazard
    if on_device(value):
        return (effect(form, value, reason, times=times, level=level),)
    return ()


def _number_of(value: Value) -> Value:
    """The Python number that a tensor of one element holds."""
    return Value(kinds=HOST, strength=CERTAIN, dtype=value.dtype, total=value.total, params=value.params)


def item(receiver: Value, args: Args) -> Outcome:
    """`x.item()`."""
    if not receiver.kinds & TENSOR:
        if receiver.kinds & UNKNOWN and not receiver.kinds & (ARRAY | HOST):
            return Outcome(HOST_NUMBER, (effect(forms.ITEM, receiver, _NOT_KNOWN, level=POSSIBLE),))
        return Outcome(HOST_NUMBER)
    return Outcome(_number_of(receiver), reading(forms.ITEM, receiver, "item() of a device tensor"))


def tolist(receiver: Value, args: Args) -> Outcome:
    """`x.tolist()`: one copy, whatever the length; nothing when there are no elements."""
    if not receiver.kinds & TENSOR:
        result = sequence_of(HOST_NUMBER, same=receiver.same)
        if receiver.kinds == UNKNOWN:
            return Outcome(result, (effect(forms.TOLIST, receiver, _NOT_KNOWN, level=POSSIBLE),))
        return Outcome(result)
    result = HOST_NUMBER if receiver.ndim == 0 else nested_numbers(receiver)
    if receiver.numel == 0:
        return Outcome(result)
    return Outcome(result, reading(forms.TOLIST, receiver, "tolist() of a device tensor"))


def nested_numbers(tensor: Value) -> Value:
    """A list with the numbers of a tensor, nested as deep as it has dimensions."""
    numbers = HOST_NUMBER
    for _ in range((tensor.ndim or 1) - 1):
        numbers = sequence_of(numbers)
    return replace(sequence_of(numbers, same=tensor.same), strength=CERTAIN, params=tensor.params)


def converted(value: Value, form: str, what: str) -> Outcome:
    """`int(x)`, `float(x)`, `bool(x)`, `math.sqrt(x)`: what asks an object for a Python number."""
    if value.kinds & TENSOR:
        return Outcome(_number_of(value), reading(form, value, f"{what} reads a device tensor"))
    if value.kinds & HOST:
        return Outcome(replace(HOST_NUMBER, const=value.const, total=value.total))
    return Outcome(HOST_NUMBER)


_TRUTHS = {
    "condition": forms.TRUTH_CONDITION,
    "assert": forms.TRUTH_ASSERT,
    "not": forms.TRUTH_NOT,
    "and-or": forms.TRUTH_AND_OR,
    "conversion": forms.TRUTH_CONVERSION,
}


def truth(value: Value, context: str = "condition") -> tuple[Effect, ...]:
    """`if x`, `while x`, a ternary ("condition"), "assert", "not", "and-or", bool(x) ("conversion").

    A name that is a tensor by convention alone may be a list or None: nothing is said of it.
    """
    if not value.kinds & TENSOR or by_name_alone(value):
        return ()
    # What may be something else as well is asked whether it is there, more often than what it holds.
    level = POSSIBLE if value.kinds & (UNKNOWN | SEQUENCE | MAPPING) else CERTAIN
    return reading(_TRUTHS[context], value, "Python asks a device tensor for its truth", level=level)


def truth_of_elements(value: Value, what: str) -> tuple[Effect, ...]:
    """What compares or tests the elements of `value` one by one: `any(x)`, `sorted(x)`, `max(a, b)`."""
    found = device_within(value)
    if found is None or (found.kinds & UNKNOWN and found.strength == POSSIBLE):
        return ()
    return (effect(forms.BUILTIN_OVER_TENSOR, found, f"{what} tests device tensors one by one", times=0),)


def format_value(value: Value, form: str = forms.FORMAT_FSTRING, level: int = CERTAIN) -> tuple[Effect, ...]:
    """`f"{x}"`, `str(x)`, `print(x)`: a tensor shows its numbers; also inside a list or dict."""
    if value.kinds & TENSOR:
        if value.kinds & UNKNOWN and value.strength == POSSIBLE:
            return ()
        return reading(form, value, "the text of a device tensor holds its numbers", level=level)
    if value.kinds & (SEQUENCE | MAPPING):
        found = device_within(value)
        if found is not None and not (found.kinds & UNKNOWN and found.strength == POSSIBLE):
            return (effect(form, found, "the text of a container of device tensors holds their numbers", level=level),)
    return ()
