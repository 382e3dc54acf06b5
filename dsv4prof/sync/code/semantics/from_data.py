"""Tensors made from data that the host holds: torch builds a host tensor first and copies it, blocking."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from dsv4prof.sync.code.effects import Args, Effect, Outcome
from dsv4prof.sync.code.semantics import forms
from dsv4prof.sync.code.semantics.copies import CPU, TENSOR_CLASS_TYPES, WAITS, dtype_of, transfer
from dsv4prof.sync.code.semantics.devices import NOT_GIVEN, device_of, same_memory, target_of
from dsv4prof.sync.code.semantics.factories import beside, made, pins
from dsv4prof.sync.code.semantics.sizes import asked, dimensions, elements
from dsv4prof.sync.code.semantics.tell import after, device_within, effect, on_device, tensor_within
from dsv4prof.sync.code.values import (
    ARRAY,
    CERTAIN,
    DEVICE,
    HOST,
    LIKELY,
    NOTHING,
    ON_DEVICE,
    PAGEABLE,
    POSSIBLE,
    SEQUENCE,
    TENSOR,
    UNKNOWN,
    Value,
    Why,
)


def _from_data(args: Args, target: Value, form: str, *, aliases: bool) -> Outcome:
    data = args.get(0, "data") or args.keywords.get("obj")
    if data is None:
        return Outcome(made(target, args))
    if data.kinds & TENSOR:
        return _from_tensor(data, args, target, form)
    effects = _reads_elements(data)
    ndim, numel = _shape(data)
    dtype = _number_type(data) if data.kinds & (HOST | ARRAY) else _element_type(data)
    result = made(target, args, dtype=dtype, ndim=ndim, numel=numel, same=data.same)
    if target.places & ON_DEVICE and numel != 0:
        effects = effects + _upload(data, target, form, args, aliases)
    return Outcome(result, effects + pins(result))


def _upload(data: Value, target: Value, form: str, args: Args, aliases: bool) -> tuple[Effect, ...]:
    level = CERTAIN
    reason = "torch builds a host tensor and copies it, blocking"
    if not data.kinds & (SEQUENCE | ARRAY | HOST):
        # Nothing is known of the data: torch.tensor is called with lists and numbers, as_tensor with anything.
        level = POSSIBLE if aliases else LIKELY
        reason = "the data is not known to be on the device"
    fills = form == forms.TENSOR_FROM_HOST and "device" in args.keywords and _host_only(data)
    facts = {"list": "fill"} if fills and (data.kinds == HOST or data.ref in ("fill", "list", "tuple")) else {}
    return (
        Effect(form, min(level, target.strength), reason, target.why, params=data.params | target.params, facts=facts),
    )


def _host_only(data: Value) -> bool:
    """Whether it is a number, or a list of numbers, of the host and nothing else."""
    if data.kinds != SEQUENCE:
        return data.kinds == HOST
    items = data.items if data.items is not None else ((data.element,) if data.element is not None else ())
    return bool(items) and all(item.kinds == HOST for item in items)


def _from_tensor(data: Value, args: Args, target: Value, form: str) -> Outcome:
    """torch.tensor(t), as_tensor(t, device=...): t stays where it is unless device= says otherwise."""
    given = args.keywords.get("device")
    if given is None or given.const is None:
        dtype = dtype_of(args.keywords.get("dtype")) or data.dtype
        return Outcome(replace(data, dtype=dtype, kinds=TENSOR, element=None))
    return transfer(
        data, target, dtype_of(args.keywords.get("dtype")), WAITS, form=forms.AS_TENSOR_CPU, upload_form=form
    )


def _reads_elements(data: Value) -> tuple[Effect, ...]:
    if not data.kinds & SEQUENCE:
        return ()
    found = device_within(data)
    if found is None:
        return ()
    reason = "torch reads the elements of the list one by one"
    return (effect(forms.TENSOR_OF_TENSORS, found, reason, times=0),)


def _shape(data: Value) -> tuple[int | None, int | None]:
    if data.kinds & HOST and not data.kinds & (SEQUENCE | ARRAY):
        return 0, 1
    if data.kinds == ARRAY:
        return data.ndim, data.numel
    if data.kinds != SEQUENCE:
        return None, None
    inner = data.items[0] if data.items else data.element
    numel = len(data.items) if data.items is not None else None
    if numel == 0:
        return 1, 0
    if inner is None or inner.kinds == UNKNOWN:
        return 1, None
    below, count = _shape(inner)
    return (below + 1 if below is not None else None), (numel * count if numel and count else None)


def _element_type(data: Value) -> str:
    inner = data.items[0] if data.items else data.element
    if inner is None:
        return ""
    if inner.kinds & SEQUENCE:
        return _element_type(inner)
    return _number_type(inner)


def _number_type(value: Value) -> str:
    const = value.const
    if const is not NOTHING and type(const) in (bool, int, float):
        return type(const).__name__
    return value.dtype


def _tensor(args: Args) -> Outcome:
    return _from_data(args, target_of(args), forms.TENSOR_FROM_HOST, aliases=False)


def _as_tensor(args: Args) -> Outcome:
    device = args.keywords.get("device")
    if device is None and len(args.positional) > 2:
        device = args.positional[2]
        args = Args(args.positional[:1], {**args.keywords, "device": device}, args.open)
    return _from_data(args, device_of(device), forms.AS_TENSOR_FROM_HOST, aliases=True)


def new_tensor(receiver: Value, args: Args) -> Outcome:
    """`x.new_tensor(data)`."""
    given = args.keywords.get("device")
    target = device_of(given) if given is not None and given.const is not None else beside(receiver)
    return _from_data(args, target, forms.NEW_TENSOR, aliases=False)


def _from_host(args: Args) -> Outcome:
    """from_numpy, frombuffer: host memory, shared."""
    data = args.get(0, "ndarray")
    result = made(CPU, Args())
    if data is not None:
        result = replace(result, dtype=data.dtype, ndim=data.ndim, same=data.same)
    return Outcome(result)


def _parameter(args: Args) -> Outcome:
    data = args.get(0, "data")
    if data is None or not data.kinds & TENSOR:
        return Outcome(made(CPU, Args()))
    if on_device(data) or data.why is None or data.why.text != NOT_GIVEN:
        return Outcome(replace(data, kinds=TENSOR))
    # Made without device=, under whatever default device the model is built with; and it moves with its module.
    why = Why("a parameter of a module, taken to live on the device", before=data.why)
    return Outcome(replace(data, kinds=TENSOR, places=ON_DEVICE, strength=LIKELY, why=why))


def _sparse(args: Args) -> Outcome:
    """sparse_coo_tensor(indices, values, size, device=None): beside its values."""
    values = args.get(1, "values") or args.get(0, "indices")
    source = tensor_within(values) if values is not None else None
    given = args.keywords.get("device")
    if given is None and source is not None:
        return Outcome(made(same_memory(source), args))
    return Outcome(made(device_of(given), args))


def _nested(args: Args) -> Outcome:
    """nested_tensor(list of tensors): offsets are built on the host and copied."""
    found = device_within(args.positional[0]) if args.positional else None
    given = args.keywords.get("device")
    if found is None and given is None:
        return Outcome(made(CPU, args))
    target = device_of(given) if given is not None else same_memory(found) if found is not None else CPU
    source = found if found is not None else replace(target, kinds=TENSOR)
    result = made(target, args)
    if not on_device(result):
        return Outcome(result)
    return Outcome(result, (effect(forms.NESTED_TENSOR, source, "the offsets are made on the host and copied"),))


def tensor_class(name: str, args: Args) -> Outcome:
    """`torch.LongTensor(...)`, `torch.cuda.FloatTensor(...)`: the class says where."""
    target = Value(kinds=DEVICE, places=ON_DEVICE, strength=CERTAIN, why=Why(f"made by torch.{name}"))
    if not name.startswith("cuda."):
        target = replace(target, places=PAGEABLE)
    data = args.get(0, "data")
    dtype = TENSOR_CLASS_TYPES.get(name.rpartition(".")[2], "float")
    if data is None or (data.kinds == HOST and not args.keywords) or len(args.positional) > 1:
        sizes = args.positional
        value = made(target, Args(), dtype=dtype, ndim=dimensions(sizes), numel=elements(sizes))
        return Outcome(value, asked(forms.FACTORY_SIZE, sizes, "a device tensor is given as a size"))
    outcome = _from_data(after(args, 0), target, forms.TENSOR_FROM_HOST, aliases=False)
    return Outcome(replace(outcome.value, dtype=dtype), tuple(replace(e, facts={}) for e in outcome.effects))


FROM_DATA: dict[str, Callable[[Args], Outcome]] = {
    "tensor": _tensor,
    "as_tensor": _as_tensor,
    "asarray": _as_tensor,
    "from_numpy": _from_host,
    "frombuffer": _from_host,
    "from_file": _from_host,
    "nn.Parameter": _parameter,
    "nn.parameter.Parameter": _parameter,
    "sparse_coo_tensor": _sparse,
    "sparse_csr_tensor": _sparse,
    "nested.nested_tensor": _nested,
    "nested.as_nested_tensor": _nested,
}
