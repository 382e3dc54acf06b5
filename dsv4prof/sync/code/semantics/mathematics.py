"""Functions of math and operator, which ask what they are given for numbers."""

from __future__ import annotations

from collections.abc import Callable

from dsv4prof.sync.code.effects import Args, Effect, Outcome
from dsv4prof.sync.code.semantics import forms
from dsv4prof.sync.code.semantics.listed import listed
from dsv4prof.sync.code.semantics.operators import binary, compare, unary
from dsv4prof.sync.code.semantics.reads import by_name_alone, reading
from dsv4prof.sync.code.semantics.tell import derived, device_within, effect, every
from dsv4prof.sync.code.values import (
    ANYTHING,
    ARRAY,
    HOST,
    HOST_NUMBER,
    SEQUENCE,
    TENSOR,
    Value,
    sequence,
)

Handler = Callable[[Args], Outcome | None]


def _number(args: Args) -> Outcome | None:
    """abs(x), round(x): what they are given; of a tensor a tensor."""
    if not args.positional:
        return None
    value = args.positional[0]
    if value.kinds & TENSOR:
        return Outcome(derived(value, ndim=value.ndim, numel=value.numel))
    return Outcome(HOST_NUMBER) if value.kinds & (HOST | ARRAY) else Outcome(ANYTHING)


def _divmod(args: Args) -> Outcome | None:
    if len(args.positional) != 2:
        return None
    one = binary("//", *args.positional).value
    return Outcome(sequence((one, one)))


def _operator(op: str, function: Callable[[str, Value, Value], Outcome]) -> Handler:
    def apply(args: Args) -> Outcome | None:
        return function(op, args.positional[0], args.positional[1]) if len(args.positional) == 2 else None

    return apply


def _single(op: str) -> Handler:
    def apply(args: Args) -> Outcome | None:
        return unary(op, args.positional[0]) if args.positional else None

    return apply


_OVER_SEQUENCES = listed("fsum prod dist hypot gcd lcm sumprod")


def math_call(name: str, args: Args) -> Outcome:
    """`math.<name>(...)`."""
    effects: tuple[Effect, ...] = ()
    for value in every(args):
        if name in _OVER_SEQUENCES and value.kinds & (TENSOR | SEQUENCE):
            if name == "prod":
                # math.prod multiplies with *, and so stays on the device.
                found = device_within(value)
                if found is not None:
                    return Outcome(derived(found, ndim=0))
                continue
            found = device_within(value)
            if found is not None and not by_name_alone(found):
                reason = f"math.{name} reads each element"
                effects += (effect(forms.ITEM_PER_ELEMENT, found, reason, times=0),)
        elif value.kinds & TENSOR and not by_name_alone(value):
            effects += reading(forms.MATH_FUNCTION, value, f"math.{name} asks a device tensor for its number")
    return Outcome(HOST_NUMBER, effects)


MATHEMATICS: dict[str, Handler] = {
    "abs": _number,
    "round": _number,
    "divmod": _divmod,
    "operator.not_": _single("not"),
    "operator.neg": _single("-"),
    "operator.invert": _single("~"),
    "pow": _operator("**", binary),
    **{
        f"operator.{name}": _operator(op, binary)
        for name, op in {
            "add": "+",
            "sub": "-",
            "mul": "*",
            "truediv": "/",
            "floordiv": "//",
            "mod": "%",
            "and_": "&",
            "or_": "|",
        }.items()
    },
    **{
        f"operator.{name}": _operator(op, compare)
        for name, op in {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "is_": "is"}.items()
    },
}
