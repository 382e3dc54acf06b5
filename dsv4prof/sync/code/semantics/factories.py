"""Tensors made from sizes, numbers, lists and arrays.

From sizes and one number a kernel fills device memory: no wait. From a list or an array torch builds a host tensor
and copies it, blocking. Without `device=` the result is on the host.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from dsv4prof.sync.code.effects import Args, Effect, Outcome
from dsv4prof.sync.code.semantics import forms
from dsv4prof.sync.code.semantics.copies import dtype_of
from dsv4prof.sync.code.semantics.copy_into import pinning
from dsv4prof.sync.code.semantics.devices import device_of, same_memory, target_of
from dsv4prof.sync.code.semantics.listed import listed
from dsv4prof.sync.code.semantics.sizes import asked, dimensions, elements
from dsv4prof.sync.code.values import (
    DEVICE,
    HOST_PLACES,
    LIKELY,
    ON_DEVICE,
    PINNED,
    SEQUENCE,
    TENSOR,
    Value,
    Why,
)

WAITS = 1
_SIZE = "a device tensor is given as a size"
_BOUND = "a device tensor is given as a bound"
_FILL = "a device tensor is given as the fill value"


def made(
    target: Value, args: Args, *, dtype: str = "", ndim: int | None = None, numel: int | None = None, same: str = ""
) -> Value:
    """A fresh tensor in the memory of `target`, pinned if the call asks for it."""
    pinned = args.keywords.get("pin_memory")
    places = target.places
    if pinned is not None and pinned.const is not False and pinned.const is not None and not places & ON_DEVICE:
        # pin_memory=flag: pinned on the machines that matter.
        places = PINNED if pinned.const is True else HOST_PLACES
    return Value(
        kinds=TENSOR,
        places=places,
        strength=target.strength,
        dtype=dtype_of(args.keywords.get("dtype")) or dtype,
        ndim=ndim,
        numel=numel,
        same=same,
        why=target.why,
        params=target.params,
    )


def pins(value: Value) -> tuple[Effect, ...]:
    return (pinning(value),) if value.places == PINNED else ()


def _sized(args: Args, skip: int = 0) -> Outcome:
    """zeros, ones, empty, rand, randn: every positional argument is a size."""
    sizes = args.positional[skip:]
    named = args.keywords.get("size") or args.keywords.get("shape")
    if named is not None and not sizes:
        sizes = (named,)
    result = made(target_of(args), args, ndim=dimensions(sizes), numel=elements(sizes))
    if args.open and not sizes:
        result = replace(result, ndim=None, numel=None)
    return Outcome(result, asked(forms.FACTORY_SIZE, sizes, _SIZE) + pins(result))


def _first_is_size(args: Args) -> Outcome:
    """full(size, value), empty_strided(size, stride)."""
    size = args.get(0, "size")
    sizes = (size,) if size is not None else ()
    result = made(target_of(args), args, ndim=dimensions(sizes), numel=elements(sizes))
    effects = asked(forms.FACTORY_SIZE, sizes, _SIZE)
    return Outcome(
        result, effects + asked(forms.FILL_VALUE_PARAMETER, (args.get(1, "fill_value"),), _FILL) + pins(result)
    )


def _randint(args: Args) -> Outcome:
    result = made(target_of(args), args, dtype="int")
    values = (*args.positional, *(args.keywords.get(name) for name in ("low", "high", "size")))
    sizes = args.keywords.get("size") or (args.positional[-1] if args.positional else None)
    if sizes is not None and sizes.kinds == SEQUENCE:
        result = replace(result, ndim=dimensions((sizes,)), numel=elements((sizes,)))
    return Outcome(result, asked(forms.FACTORY_SIZE, values, _SIZE))


def _arange(args: Args) -> Outcome:
    bounds = (*args.positional, *(args.keywords.get(name) for name in ("start", "end", "step")))
    given = [value for value in bounds if value is not None]
    whole = all(type(value.const) is not float for value in given)
    count = given[0].const if len(given) == 1 and type(given[0].const) is int else None
    if len(given) >= 2 and type(given[0].const) is int and type(given[1].const) is int:
        step = given[2].const if len(given) > 2 else 1
        count = len(range(given[0].const, given[1].const, step)) if type(step) is int and step else None
    dtype = "int" if whole else "float"
    result = made(target_of(args), args, dtype=dtype, ndim=1, numel=count)
    return Outcome(result, asked(forms.ARANGE_BOUND, bounds, _BOUND))


def _linspace(args: Args) -> Outcome:
    bounds = (*args.positional, *(args.keywords.get(name) for name in ("start", "end", "steps")))
    result = made(target_of(args), args, dtype="float", ndim=1)
    return Outcome(result, asked(forms.LINSPACE_BOUND, bounds, _BOUND))


def _scalar_tensor(args: Args) -> Outcome:
    result = made(target_of(args), args, ndim=0, numel=1)
    return Outcome(result, asked(forms.FILL_VALUE_PARAMETER, args.positional[:1], _FILL))


def _grid(args: Args) -> Outcome:
    """tril_indices(row, col, offset), eye(n, m), randperm(n), hann_window(n)."""
    result = made(target_of(args), args)
    return Outcome(result, asked(forms.FACTORY_SIZE, args.positional, _SIZE))


def like(receiver: Value, args: Args) -> Outcome:
    """zeros_like(x), x.new_zeros(...): in the memory of x unless device= says otherwise; sizes are told elsewhere."""
    given = args.keywords.get("device")
    target = device_of(given) if given is not None and given.const is not None else beside(receiver)
    return Outcome(made(target, args, dtype=receiver.dtype, ndim=receiver.ndim, numel=receiver.numel))


def beside(receiver: Value) -> Value:
    if receiver.kinds & TENSOR:
        return same_memory(receiver)
    return Value(kinds=DEVICE, places=ON_DEVICE, strength=LIKELY, why=Why("made like a tensor of unknown place"))


def new_sized(receiver: Value, args: Args) -> Outcome:
    """x.new_zeros(*sizes), new_full(size, value)."""
    sizes = args.positional
    value = like(receiver, args).value
    return Outcome(replace(value, ndim=dimensions(sizes), numel=elements(sizes)))


_SIZED = listed("zeros ones empty rand randn")
FACTORIES: dict[str, Callable[[Args], Outcome]] = {
    **dict.fromkeys(_SIZED, _sized),
    **dict.fromkeys(listed("full empty_strided empty_permuted"), _first_is_size),
    **dict.fromkeys(listed("eye tril_indices triu_indices randperm hann_window hamming_window kaiser_window"), _grid),
    "randint": _randint,
    "arange": _arange,
    "range": _arange,
    "linspace": _linspace,
    "logspace": _linspace,
    "scalar_tensor": _scalar_tensor,
}
