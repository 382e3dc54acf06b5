"""Copies between host and device: to, cpu, cuda, copy_, numpy, type, pin_memory.

A blocking copy waits in both directions, also from and to pinned memory. One with non_blocking=True does not wait when
the host side is pinned and dense; to pageable memory it waits and nothing warns of it.
"""

from __future__ import annotations

from msgspec.structs import replace

from dsv4prof.sync.code.effects import Args, Effect, Outcome
from dsv4prof.sync.code.semantics import forms
from dsv4prof.sync.code.semantics.devices import device_of
from dsv4prof.sync.code.semantics.tell import all_params, effect, on_device
from dsv4prof.sync.code.values import (
    ARRAY,
    CALLABLE,
    CERTAIN,
    DEVICE,
    DTYPE,
    HOST,
    HOST_PLACES,
    LIKELY,
    NONE,
    NOTHING,
    OBJECT,
    ON_DEVICE,
    PAGEABLE,
    PINNED,
    POSSIBLE,
    TENSOR,
    UNKNOWN,
    Value,
    Why,
)

CPU = Value(kinds=DEVICE, places=PAGEABLE, strength=CERTAIN, const="cpu")
_CUDA = Value(kinds=DEVICE, places=ON_DEVICE, strength=CERTAIN, const="cuda", why=Why("moved to the device"))
WAITS = 1
MAY_WAIT = 2
ASYNC = 3
# Measured on an H200: a pageable upload of 2 MiB did not wait although non_blocking, one of four bytes more did.
_STAGED_BYTES = 2 << 20
_WIDTHS = {"bool": 1, "uint8": 1}


def waiting(non_blocking: Value | None) -> int:
    """Whether a copy with this `non_blocking=` waits."""
    if non_blocking is None or non_blocking.const is None or non_blocking.const is False:
        return WAITS
    if non_blocking.const is NOTHING:
        return MAY_WAIT
    return ASYNC if non_blocking.const else WAITS


def to(receiver: Value, args: Args) -> Outcome | None:
    """`x.to(...)`: a device, a dtype, another tensor, in any order that torch takes."""
    device, dtype, sure = _target(args)
    if receiver.kinds & OBJECT and not receiver.kinds & TENSOR:
        return _module(receiver, device if sure else None)
    non_blocking = args.keywords.get("non_blocking")
    if non_blocking is None and len(args.positional) > 1:
        flags = [value for value in args.positional[1:] if not value.kinds & (DTYPE | CALLABLE)]
        non_blocking = flags[0] if flags else None
    if device is None:
        return Outcome(cast(receiver, dtype), ())
    if not sure and not on_device(receiver) and receiver.kinds & TENSOR:
        # x_cpu.to(y), where y may be a dtype as well as a device.
        kept = replace(receiver, places=receiver.places | ON_DEVICE, strength=POSSIBLE)
        return Outcome(cast(kept, dtype))
    if not sure:
        return Outcome(cast(receiver, dtype))
    like = any(value.kinds & TENSOR for value in args.positional[:1])
    form = forms.TO_CPU_LIKE if like else forms.TO_CPU
    return transfer(receiver, device, dtype, waiting(non_blocking), form=form)


# Classes of torch.nn with weights, by what their names hold.
_WEIGHTED = ("Linear", "Conv", "Embedding", "Norm", "LSTM", "GRU", "RNN", "Attention", "Transformer", "PReLU")


def _module(module: Value, device: Value | None) -> Outcome:
    """`module.to(device)`: its weights are copied, where they lie on the host."""
    if device is None or not device.places & ON_DEVICE or not module.ref.startswith("torch.nn."):
        return Outcome(module)
    there = replace(module, places=ON_DEVICE)
    if module.places & ON_DEVICE or not any(part in module.ref for part in _WEIGHTED):
        return Outcome(there)
    reason = "the weights of a module are copied to the device"
    return Outcome(there, (Effect(forms.MODULE_TO_DEVICE, min(LIKELY, device.strength), reason, device.why),))


def _target(args: Args) -> tuple[Value | None, str, bool]:
    """Device, dtype ("" for the same) and whether the device is one for sure."""
    device = args.keywords.get("device")
    dtype = dtype_of(args.keywords.get("dtype"))
    sure = device is not None
    other = args.keywords.get("other")
    for value in (args.positional if other is None else (other, *args.positional))[:2]:
        if value.kinds & DTYPE or (value.kinds == CALLABLE and value.ref in _TYPES):
            dtype = dtype_of(value)
        elif device is None and (value.kinds & (DEVICE | TENSOR) or type(value.const) in (str, int)):
            device, sure = value, True
            if value.kinds & TENSOR:
                dtype = dtype or value.dtype
        elif device is None and value.kinds & (UNKNOWN | HOST | NONE) and value.const is NOTHING:
            device = value
            sure = "non_blocking" in args.keywords or bool(dtype) or "dtype" in args.keywords
        if device is None and value.const is None:
            break
    return (device_of(device) if device is not None and device.const is not None else None), dtype, sure


_TYPES = {"int": "int", "float": "float", "bool": "bool"}


def dtype_of(value: Value | None) -> str:
    """The name of the type that `dtype=` speaks of, "" when it is not known."""
    if value is None:
        return ""
    if value.kinds & DTYPE:
        return value.dtype
    return _TYPES.get(value.ref, "") if value.kinds == CALLABLE else ""


def cast(value: Value, dtype: str) -> Value:
    """The tensor with another element type, where it was."""
    if value.kinds & TENSOR:
        return replace(value, dtype=dtype or value.dtype) if dtype else value
    return value if value.kinds & (ARRAY | OBJECT) else replace(value, dtype=dtype) if dtype else value


def transfer(
    source: Value,
    target: Value,
    dtype: str,
    waits: int,
    *,
    form: str = forms.TO_CPU,
    upload_form: str = forms.TO_DEVICE,
) -> Outcome:
    """`source` copied to the memory that `target` speaks of, if it is not there."""
    tensor = source if source.kinds & TENSOR else _unproven(source, target)
    effects: list[Effect] = []
    result = moved(tensor, target, dtype)
    if target.places & HOST_PLACES and (on_device(tensor) or not source.kinds & TENSOR):
        result = _to_host(tensor, target, result, waits, form, effects)
    elif target.places & HOST_PLACES and not target.places & ON_DEVICE:
        result = replace(result, places=tensor.places, pending=tensor.pending, strength=tensor.strength)
    if target.places & ON_DEVICE and source.kinds & TENSOR and tensor.places & HOST_PLACES and tensor.numel != 0:
        to_device(tensor, target, waits, upload_form, effects)
    return Outcome(result, tuple(effects))


def _unproven(source: Value, target: Value) -> Value:
    """A receiver of which nothing is known but that it is moved: whoever copies to the host has a device tensor."""
    places = ON_DEVICE if target.places & HOST_PLACES else HOST_PLACES | ON_DEVICE
    why = source.why or Why("copied to the host, so taken to live on the device")
    return Value(kinds=TENSOR, places=places, strength=LIKELY, why=why, params=source.params)


def moved(source: Value, target: Value, dtype: str) -> Value:
    """The copy of `source` in the memory of `target`."""
    params = source.params | target.params if target.params else source.params
    return Value(
        kinds=TENSOR,
        places=target.places,
        strength=target.strength,
        dtype=dtype or source.dtype,
        ndim=source.ndim,
        numel=source.numel,
        same=source.same,
        total=source.total,
        least=source.least,
        why=target.why if target.places & ON_DEVICE else Why("copied to the host", before=source.why),
        params=params,
    )


def _to_host(source: Value, target: Value, result: Value, waits: int, form: str, effects: list[Effect]) -> Value:
    if source.numel == 0:
        return result
    if waits == ASYNC:
        # The copy that to("cpu", non_blocking=True) makes is pinned, so it does not wait.
        return replace(result, places=PINNED, pending=True) if not source.places & HOST_PLACES else result
    both = target.places & ON_DEVICE
    level = min(target.strength, CERTAIN if waits == WAITS and not both else POSSIBLE)
    sure = source if source.strength >= LIKELY else replace(source, strength=LIKELY)
    effects.append(effect(form, sure, "a blocking copy of a device tensor to the host", level=level))
    return result


def to_device(source: Value, target: Value, waits: int, form: str, effects: list[Effect]) -> None:
    # What is on the host on one path only is there by a default, or before it was moved: more often than not in error.
    mixed = source.places & ON_DEVICE or target.places & HOST_PLACES
    level = POSSIBLE if mixed else min(target.strength, source.strength)
    params = all_params((source, target))
    why = target.why
    if waits == WAITS:
        reason = "a blocking copy of host memory to the device" + (
            ", pinned or not" if source.places & PINNED and not source.places & PAGEABLE else ""
        )
        effects.append(Effect(form, level, reason, why, params=params))
    elif waits == MAY_WAIT:
        effects.append(Effect(form, POSSIBLE, "non_blocking= may be False", why, params=params))
    elif source.strided and source.places & PINNED:
        reason = "a strided source goes through a pageable temporary, which waits if it is large"
        level = min(level, LIKELY if _large(source) else POSSIBLE)
        effects.append(Effect(forms.UPLOAD_NONBLOCKING_STRIDED_PINNED, level, reason, why, params=params))
    elif source.places == PAGEABLE and _large(source):
        reason = "a large pageable source waits although non_blocking"
        effects.append(Effect(forms.UPLOAD_NONBLOCKING_PAGEABLE, min(level, LIKELY), reason, why, params=params))


def _large(source: Value) -> bool:
    """Whether the driver cannot stage so many bytes and return; not of an unknown number."""
    return source.numel is not None and source.numel * _WIDTHS.get(source.dtype, 4) > _STAGED_BYTES


def cpu(receiver: Value, args: Args) -> Outcome | None:
    """`x.cpu()`."""
    if receiver.kinds & OBJECT and not receiver.kinds & TENSOR:
        return Outcome(receiver)
    return transfer(receiver, CPU, "", waiting(args.get(0, "non_blocking")), form=forms.CPU_METHOD)


def cuda(receiver: Value, args: Args) -> Outcome | None:
    """`x.cuda(device=None, non_blocking=False)`, and its twins of other vendors."""
    if receiver.kinds & OBJECT and not receiver.kinds & TENSOR:
        return _module(receiver, _CUDA)
    non_blocking = args.get(1, "non_blocking")
    first = args.get(0, "device")
    if non_blocking is None and first is not None and type(first.const) is bool:
        non_blocking = first
    return transfer(receiver, _CUDA, "", waiting(non_blocking), upload_form=forms.CUDA_METHOD)


def as_type(receiver: Value, args: Args) -> Outcome | None:
    """`x.type(t)`: a dtype, or the name of a tensor class, which names the memory as well."""
    wanted = args.get(0, "dtype")
    if wanted is None:
        return Outcome(Value(kinds=HOST, strength=CERTAIN))
    name = wanted.const if isinstance(wanted.const, str) else wanted.ref
    if not name.endswith("Tensor"):
        return Outcome(cast(receiver, dtype_of(wanted)))
    target = _CUDA if "cuda" in name else CPU
    return transfer(receiver, target, TENSOR_CLASS_TYPES.get(name.rpartition(".")[2], ""), WAITS, form=forms.TYPE_CPU)


TENSOR_CLASS_TYPES = {
    "BoolTensor": "bool",
    "ByteTensor": "uint8",
    "LongTensor": "int",
    "IntTensor": "int",
    "ShortTensor": "int",
    "CharTensor": "int",
    "FloatTensor": "float",
    "DoubleTensor": "float",
    "HalfTensor": "float",
    "BFloat16Tensor": "float",
}
