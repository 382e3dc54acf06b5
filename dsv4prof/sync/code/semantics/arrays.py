"""NumPy: always host memory. A device tensor raises there, but for what asks it for a number."""

from __future__ import annotations

from msgspec.structs import replace

from dsv4prof.sync.code.effects import Args, Effect, Outcome
from dsv4prof.sync.code.semantics import forms
from dsv4prof.sync.code.semantics.listed import listed
from dsv4prof.sync.code.semantics.reads import nested_numbers, pending_read
from dsv4prof.sync.code.semantics.sizes import asked, dimensions, elements
from dsv4prof.sync.code.semantics.tell import device_within, effect, every
from dsv4prof.sync.code.values import (
    ARRAY,
    CERTAIN,
    DTYPE,
    HOST,
    HOST_NUMBER,
    SEQUENCE,
    TENSOR,
    UNKNOWN,
    Value,
    sequence_of,
)

_SIZED = listed("zeros ones empty full random.rand random.randn")
_AS_ARRAY = listed("asarray array ascontiguousarray asanyarray fromiter stack concatenate")
_VIEWS = listed("reshape view ravel squeeze transpose")
_TYPES = listed(
    "int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 bool_ intp longlong dtype int_ double"
)


def numpy_call(name: str, args: Args) -> Outcome:
    """`numpy.<name>(...)`."""
    if name in _TYPES:
        return Outcome(Value(kinds=HOST, strength=CERTAIN, dtype=type_of(name)), _converted(args))
    values = every(args)
    if name in _SIZED:
        sizes = args.positional[:1]
        effects = asked(forms.FACTORY_SIZE, sizes, "a device tensor is given as a size")
        return Outcome(_array(ndim=dimensions(sizes), numel=elements(sizes)), effects)
    effects = ()
    for value in values:
        effects += pending_read(value) + _elements(value)
    first = args.positional[0] if args.positional else None
    if name in _AS_ARRAY and first is not None:
        ndim = first.ndim if first.kinds & (ARRAY | TENSOR) else 1 if first.kinds & SEQUENCE else None
        return Outcome(_array(ndim=ndim, dtype=first.dtype, same=first.same), effects)
    if name == "arange":
        return Outcome(_array(ndim=1, dtype="int"), asked(forms.ARANGE_BOUND, args.positional, "a bound is read"))
    if name in ("where", "nonzero", "unique", "meshgrid", "split", "array_split"):
        return Outcome(Value(kinds=ARRAY | SEQUENCE, element=_array(), strength=CERTAIN), effects)
    return Outcome(_array(), effects)


def _array(ndim: int | None = None, dtype: str = "", numel: int | None = None, same: str = "") -> Value:
    return Value(kinds=ARRAY, strength=CERTAIN, ndim=ndim, dtype=dtype, numel=numel, same=same)


def _converted(args: Args) -> tuple[Effect, ...]:
    return asked(forms.SCALAR_CONVERSION, args.positional[:1], "NumPy asks a device tensor for its number")


def _elements(value: Value) -> tuple[Effect, ...]:
    """A list of 0-dim device tensors made into an array: each is asked for its number."""
    if not value.kinds & SEQUENCE or value.kinds & TENSOR:
        return ()
    found = device_within(value)
    if found is None or found.kinds & UNKNOWN or found.ndim != 0:
        return ()
    return (effect(forms.TENSOR_OF_TENSORS, found, "NumPy reads the elements of the list one by one", times=0),)


def type_of(name: str) -> str:
    """The kind of number that a NumPy type holds."""
    if name.startswith("bool"):
        return "bool"
    if name == "uint8":
        return "uint8"
    if name.startswith(("int", "uint", "longlong")):
        return "int"
    return "float" if name.startswith(("float", "double")) else ""


def array_method(receiver: Value, name: str, args: Args) -> Outcome | None:
    """A method of an array: never a wait, at most too early."""
    if receiver.pending:
        outcome = array_method(replace(receiver, pending=False), name, args)
        if name in _VIEWS or outcome is None:
            return outcome and replace(outcome, value=replace(outcome.value, pending=True))
        return replace(outcome, effects=outcome.effects + pending_read(receiver))
    if name == "item":
        return Outcome(HOST_NUMBER)
    if name == "tolist":
        return Outcome(nested_numbers(receiver))
    if name in ("sum", "max", "min", "mean", "prod", "any", "all", "argmax", "argmin", "std"):
        if not every(args):
            number = Value(kinds=HOST, strength=CERTAIN, total=receiver.same if name == "sum" else "")
            return Outcome(number)
        return Outcome(Value(kinds=ARRAY, strength=CERTAIN))
    if name == "nonzero":
        return Outcome(sequence_of(Value(kinds=ARRAY, strength=CERTAIN, ndim=1, dtype="int"), "tuple"))
    if name in ("tobytes", "dumps", "size", "tofile"):
        return Outcome(HOST_NUMBER)
    if name == "astype":
        wanted = args.get(0, "dtype")
        dtype = wanted.dtype if wanted is not None and wanted.kinds & DTYPE else ""
        return Outcome(_array(ndim=receiver.ndim, dtype=dtype, same=receiver.same))
    ndim = receiver.ndim if name in ("copy", "cumsum", "clip", "round", "repeat", "argsort") else None
    return Outcome(_array(ndim=ndim, dtype=receiver.dtype))
