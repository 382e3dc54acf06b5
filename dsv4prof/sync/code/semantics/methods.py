"""Methods by what is known of their receiver."""

from __future__ import annotations

from msgspec.structs import replace

from dsv4prof.sync.code.effects import Args, Outcome
from dsv4prof.sync.code.semantics import forms
from dsv4prof.sync.code.semantics.arrays import array_method
from dsv4prof.sync.code.semantics.builtin import BUILTINS
from dsv4prof.sync.code.semantics.indexing import contents, subscript
from dsv4prof.sync.code.semantics.listed import listed
from dsv4prof.sync.code.semantics.operations import ANYBODYS, OPERATIONS, SHARED, operate
from dsv4prof.sync.code.semantics.operators import compare
from dsv4prof.sync.code.semantics.reads import format_value
from dsv4prof.sync.code.semantics.runtime import (
    LOGGED,
    logged,
    object_method,
    synchronize_of_unknown,
)
from dsv4prof.sync.code.semantics.tell import every
from dsv4prof.sync.code.values import (
    ANYTHING,
    ARRAY,
    CERTAIN,
    HOST,
    HOST_NUMBER,
    LIKELY,
    MAPPING,
    NONE,
    OBJECT,
    ON_DEVICE,
    POSSIBLE,
    SEQUENCE,
    TENSOR,
    UNKNOWN,
    Value,
    Why,
    join,
    mapping_of,
    sequence,
    sequence_of,
)

_MODULE_ITSELF = listed("eval train requires_grad_ half float double bfloat16 apply type share_memory")


def method(receiver: Value, name: str, args: Args) -> Outcome | None:
    """`receiver.name(...)`; None when nothing is known of it."""
    kinds = receiver.kinds
    if kinds & TENSOR:
        if kinds & UNKNOWN and receiver.strength == POSSIBLE:
            return _by_convention(receiver, name, args)
        return operate(name, receiver, args) if name != "__getitem__" else subscript(receiver, args.positional[0])
    if kinds & OBJECT:
        if receiver.ref.startswith("torch.nn."):
            if name in ("to", "cuda", "cpu"):
                return OPERATIONS[name](receiver, args)
            if name in _MODULE_ITSELF:
                return Outcome(receiver)
        return object_method(receiver.ref, name, args) or _of_unknown_object(receiver, name, args)
    if kinds & (SEQUENCE | MAPPING):
        return _container(receiver, name, args)
    if kinds & ARRAY:
        return array_method(receiver, name, args)
    if kinds & UNKNOWN:
        return _unknown(receiver, name, args)
    if kinds & HOST:
        return _host(receiver, name, args)
    return None


def _by_convention(receiver: Value, name: str, args: Args) -> Outcome | None:
    """A receiver that is a tensor by its name: a method of tensors shows that it is one."""
    if name in OPERATIONS or name.endswith("_"):
        return operate(name, replace(receiver, kinds=TENSOR, strength=LIKELY), args)
    if name in LOGGED:
        return logged(name, args)
    return operate(name, receiver, args)


def _unknown(receiver: Value, name: str, args: Args) -> Outcome | None:
    if name == "synchronize":
        return synchronize_of_unknown(args)
    if name in LOGGED:
        return logged(name, args)
    if name in ("item", "tolist", "cpu"):
        return OPERATIONS[name](receiver, args)
    if name == "to":
        outcome = OPERATIONS[name](receiver, args)
        return outcome if outcome is not None and outcome.effects else _moved(receiver, outcome)
    if name in SHARED:
        guessed = Value(
            kinds=TENSOR,
            places=ON_DEVICE,
            strength=POSSIBLE,
            why=Why(f"{name}() of an unknown object, taken for a tensor"),
            params=receiver.params,
        )
        outcome = operate(name, guessed, args)
        if outcome is not None and outcome.value.kinds & TENSOR:
            return Outcome(replace(outcome.value, kinds=TENSOR | UNKNOWN), outcome.effects)
        return outcome
    if name in ANYBODYS or name not in OPERATIONS:
        if name.endswith("_") and not name.startswith("_") and name not in ANYBODYS:
            return Outcome(_proved(receiver, name))
        return None
    return operate(name, _proved(receiver, name), args)


def _moved(receiver: Value, outcome: Outcome | None) -> Outcome | None:
    """x.to(device): a tensor or a module."""
    if outcome is None or not outcome.value.kinds & TENSOR:
        return None
    return Outcome(replace(outcome.value, kinds=TENSOR | UNKNOWN, strength=POSSIBLE))


def _proved(receiver: Value, name: str) -> Value:
    return Value(
        kinds=TENSOR,
        places=ON_DEVICE,
        strength=LIKELY,
        why=Why(f"{name}() is a method of tensors, and nothing says that this one is on the host"),
        params=receiver.params,
    )


def _of_unknown_object(receiver: Value, name: str, args: Args) -> Outcome | None:
    if name == "synchronize":
        return synchronize_of_unknown(args)
    return logged(name, args) if name in LOGGED else None


def _host(receiver: Value, name: str, args: Args) -> Outcome | None:
    if name == "format":
        effects = tuple(e for value in every(args) for e in format_value(value, forms.FORMAT_FSTRING))
        return Outcome(HOST_NUMBER, effects)
    if name == "split":
        return Outcome(sequence_of(HOST_NUMBER))
    return Outcome(HOST_NUMBER) if receiver.kinds == HOST else None


def _container(receiver: Value, name: str, args: Args) -> Outcome | None:
    if receiver.kinds & MAPPING:
        return _mapping(receiver, name, args)
    if name in ("index", "count", "remove") and args.positional:
        return Outcome(HOST_NUMBER, compare("in", args.positional[0], receiver).effects)
    if name == "pop":
        effects = subscript(receiver, args.positional[0]).effects if args.positional else ()
        return Outcome(contents(receiver), effects)
    if name == "copy":
        return Outcome(receiver)
    if name == "sort" and "key" not in args.keywords:
        return BUILTINS["sorted"](Args((receiver,)))
    if name in ("tolist", "item") and receiver.kinds & UNKNOWN:
        return OPERATIONS[name](receiver, args)
    return None


def _mapping(receiver: Value, name: str, args: Args) -> Outcome | None:
    element = receiver.element or ANYTHING
    if name == "get":
        missing = args.get(1, "default") or Value(kinds=NONE, const=None, strength=CERTAIN)
        return Outcome(join(element, missing) if element is not ANYTHING else ANYTHING)
    if name in ("pop", "setdefault"):
        return Outcome(element)
    if name == "values":
        return Outcome(sequence_of(element, "generator"))
    if name == "items":
        return Outcome(sequence_of(sequence((Value(kinds=UNKNOWN), element)), "generator"))
    if name == "keys":
        return Outcome(sequence_of(Value(kinds=UNKNOWN), "generator"))
    return Outcome(mapping_of(element)) if name == "copy" else None
