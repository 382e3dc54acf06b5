"""torch.cuda and its twins, streams and events, distributed calls, and other calls that wait by what they are."""

from __future__ import annotations

from collections.abc import Callable

from dsv4prof.sync.code.effects import Args, Effect, Outcome
from dsv4prof.sync.code.semantics import forms
from dsv4prof.sync.code.semantics.listed import listed
from dsv4prof.sync.code.semantics.reads import format_value
from dsv4prof.sync.code.semantics.tell import HOST_RESULT, deciding, derived, device_within, effect, every, on_device
from dsv4prof.sync.code.values import (
    ANYTHING,
    CERTAIN,
    DEVICE,
    HOST,
    LIKELY,
    OBJECT,
    ON_DEVICE,
    PAGEABLE,
    POSSIBLE,
    TENSOR,
    Value,
    Why,
    constant,
)

_DONE = constant(None)

# Modules of one device runtime each: torch.cuda.synchronize and torch.npu.synchronize are one thing.
RUNTIMES = listed("cuda hip accelerator npu xpu musa mtia")
EVENT = Value(kinds=OBJECT, ref="torch.cuda.Event", strength=CERTAIN)
STREAM = Value(kinds=OBJECT, ref="torch.cuda.Stream", strength=CERTAIN)
_DEVICE_HERE = Value(kinds=DEVICE, places=ON_DEVICE, strength=CERTAIN, why=Why("the device of the process"))
_STREAMS = listed("Stream ExternalStream current_stream default_stream get_stream_from_external")
_DEVICE_FACTS = listed(
    "current_device device_count is_available get_device_properties get_device_capability get_device_name "
    "memory_allocated max_memory_allocated memory_reserved max_memory_reserved mem_get_info memory_stats "
    "is_current_stream_capturing is_initialized manual_seed manual_seed_all set_device set_stream initial_seed "
    "get_arch_list utilization current_device_index reset_peak_memory_stats ipc_collect can_device_access_peer"
)


def runtime(name: str, args: Args) -> Outcome | None:
    """`torch.cuda.<name>(...)`."""
    if name == "synchronize":
        return Outcome(_DONE, (Effect(forms.CUDA_SYNCHRONIZE, CERTAIN, "waits for the whole device"),))
    if name == "empty_cache":
        reason = "freeing cached blocks waits for the device"
        return Outcome(_DONE, (Effect(forms.EMPTY_CACHE, LIKELY, reason),))
    if name == "graph":
        reason = "a capture begins by waiting for the device"
        return Outcome(ANYTHING, (Effect(forms.GRAPH_CAPTURE, CERTAIN, reason),))
    if name == "Event":
        return Outcome(EVENT)
    if name in _STREAMS:
        return Outcome(STREAM)
    if name == "CUDAGraph":
        return Outcome(Value(kinds=OBJECT, ref="torch.cuda.CUDAGraph", strength=CERTAIN))
    if name in ("current_device", "current_accelerator"):
        return Outcome(_DEVICE_HERE)
    if name in _DEVICE_FACTS:
        return HOST_RESULT
    return None


def object_method(ref: str, name: str, args: Args) -> Outcome | None:
    """A method of an object that torch made."""
    if ref.endswith(("Event", "Stream")):
        return _of_queue(ref, name)
    if ref.startswith("torch.distributions."):
        return _of_distribution(name, args)
    if ref == "torch.cuda.CUDAGraph":
        return Outcome(_DONE)
    if ref == "logging.Logger":
        return logged(name, args)
    if ref.startswith("torch.nn.") and name in ("__call__", "forward"):
        return _of_module(ref, args)
    if ref.startswith("torch.optim.") and name == "step":
        return Outcome(_DONE, (_rate_read(),) if ref.endswith(_RATE_ON_DEVICE) else ())
    if ref in ("torch.amp.GradScaler", "torch.cuda.amp.GradScaler") and name == "step":
        if args.positional and args.positional[0].ref.endswith(_FUSED):
            return Outcome(_DONE)
        reason = "whether a gradient is infinite is read"
        return Outcome(_DONE, (Effect(forms.GRAD_SCALER_STEP, LIKELY, reason),))
    return None


_FUSED = "(fused)"
_RATE_ON_DEVICE = "(lr on the device)"


def optimizer(name: str, args: Args) -> Outcome:
    """`torch.optim.AdamW(params, lr=..., fused=..., capturable=...)`: what its steps depend on stands in `ref`."""
    ref = f"torch.optim.{name}"
    rate = args.get(1, "lr")
    for flag in ("fused", "capturable"):
        given = args.keywords.get(flag)
        if given is not None and given.const not in (False, None):
            return Outcome(Value(kinds=OBJECT, ref=ref + _FUSED, strength=CERTAIN))
    if rate is not None and on_device(rate):
        ref += _RATE_ON_DEVICE
    return Outcome(Value(kinds=OBJECT, ref=ref, strength=CERTAIN))


def _rate_read() -> Effect:
    reason = "a learning rate on the device is read, unless the optimizer is fused or capturable"
    return Effect(forms.OPTIMIZER_STEP_DEVICE_LR, LIKELY, reason)


def _of_module(ref: str, args: Args) -> Outcome | None:
    """`module(x)`: a tensor beside what it was given."""
    source = deciding(every(args))
    if source is None:
        return None
    value = _shaped(ref, source)
    mask = args.keywords.get("src_key_padding_mask") if "TransformerEncoder" in ref else None
    if mask is None or not on_device(mask):
        return Outcome(value)
    reason = "the fast path of evaluation looks at the padding mask"
    return Outcome(value, (effect(forms.TRANSFORMER_PADDING_MASK, mask, reason, level=LIKELY),))


_SHAPE_KEPT = listed(
    "Linear Dropout ReLU ReLU6 GELU SiLU Mish ELU SELU Tanh Sigmoid Softmax LogSoftmax Hardswish Identity"
)


def _shaped(ref: str, source: Value) -> Value:
    """What a module makes of a batch: at least rows of features."""
    name = ref.rpartition(".")[2]
    if name.startswith("Embedding") and not name.endswith("Bag"):
        ndim = source.ndim + 1 if source.ndim is not None else None
        return derived(source, dtype="float", ndim=ndim, least=max(source.least + 1, 2))
    if name in _SHAPE_KEPT or name.endswith("Norm"):
        return derived(source, dtype="", ndim=source.ndim, least=max(source.least, 2))
    return derived(source, dtype="")


def _of_queue(ref: str, name: str) -> Outcome | None:
    if name == "synchronize":
        event = ref.endswith("Event")
        form = forms.EVENT_SYNCHRONIZE if event else forms.STREAM_SYNCHRONIZE
        reason = "the host waits for the event" if event else "the host waits for the stream"
        return Outcome(_DONE, (Effect(form, CERTAIN, reason),))
    if name == "record_event":
        return Outcome(EVENT)
    return HOST_RESULT


def synchronize_of_unknown(args: Args) -> Outcome:
    """`x.synchronize()` of an unknown object: an event, a stream, or a module of a device runtime."""
    reason = "something that is synchronized: an event, a stream or the device"
    return Outcome(_DONE, (Effect(forms.EVENT_SYNCHRONIZE, LIKELY, reason),))


def _of_distribution(name: str, args: Args) -> Outcome:
    if name in ("log_prob", "cdf", "icdf"):
        source = deciding(every(args))
        if source is not None and on_device(source):
            reason = "the value is validated on the host"
            return Outcome(derived(source), (effect(forms.DISTRIBUTION_VALIDATION, source, reason, level=LIKELY),))
    return Outcome(Value(kinds=TENSOR, places=ON_DEVICE, strength=LIKELY, why=Why("drawn from a distribution")))


# Distributed.

_OBJECT_COLLECTIVES = listed(
    "all_gather_object broadcast_object_list gather_object scatter_object_list send_object_list recv_object_list"
)
_GROUP_FACTS = listed(
    "get_rank get_world_size is_initialized get_backend is_available get_process_group_ranks get_group_rank "
    "get_global_rank is_nccl_available is_gloo_available"
)


def distributed(name: str, args: Args) -> Outcome | None:
    """`torch.distributed.<name>(...)`."""
    if name in ("barrier", "monitored_barrier"):
        level = min(CERTAIN, _by_group(args.get(0, "group"), LIKELY))
        later = args.keywords.get("async_op")
        if name == "monitored_barrier" or level < 0 or (later is not None and later.const is True):
            return Outcome(_DONE)
        return Outcome(_DONE, (Effect(forms.DIST_BARRIER, level, "a barrier of NCCL or RCCL waits on the host"),))
    if name in _OBJECT_COLLECTIVES:
        level = _by_group(args.keywords.get("group"), LIKELY)
        if level < 0:
            return Outcome(_DONE)
        reason = "the sizes of the pickled objects are read, unless the group is one of gloo"
        return Outcome(_DONE, (Effect(forms.DIST_OBJECT_COLLECTIVE, level, reason),))
    if name in _GROUP_FACTS:
        return HOST_RESULT
    return None


def _by_group(group: Value | None, otherwise: int) -> int:
    """How sure a collective is one on the device: not at all for a group with a host mark (-1)."""
    if group is None or group.const is None:
        return otherwise
    if group.places & ~ON_DEVICE and not group.places & ON_DEVICE:
        return -1
    return POSSIBLE


# Whatever is written out as bytes or text.

_LOG_LEVELS = {"debug": POSSIBLE, "info": LIKELY, "warning": LIKELY, "warn": LIKELY, "error": LIKELY}
LOGGED = frozenset({*_LOG_LEVELS, "exception", "critical", "fatal", "log", "warning_once", "info_once"})


def logged(name: str, args: Args) -> Outcome | None:
    """`logger.info("%s", x)`: x is formatted if the level is on."""
    if name not in LOGGED:
        return None
    level = _LOG_LEVELS.get(name, LIKELY)
    effects: tuple[Effect, ...] = ()
    for value in args.positional:
        effects += format_value(value, forms.FORMAT_LOGGING, level)
    return Outcome(_DONE, effects)


def serialized(args: Args) -> Outcome:
    """`torch.save(x, f)`, `pickle.dumps(x)`."""
    found = device_within(args.positional[0]) if args.positional else None
    result = Value(kinds=HOST, strength=CERTAIN)
    if found is None:
        return Outcome(result)
    return Outcome(result, (effect(forms.SERIALIZE, found, "the storage is copied to the host"),))


def logger(args: Args) -> Outcome:
    """`logging.getLogger(...)`."""
    return Outcome(Value(kinds=OBJECT, ref="logging.Logger", strength=CERTAIN))


def device(args: Args) -> Outcome:
    """`torch.device(...)`."""
    first = args.get(0, "type") or args.keywords.get("device")
    if first is None:
        return Outcome(_DEVICE_HERE)
    if first.kinds & DEVICE:
        return Outcome(first)
    const = first.const
    if isinstance(const, str):
        host = const.partition(":")[0] in ("cpu", "meta")
        places = PAGEABLE if host else ON_DEVICE
        why = Why(f"torch.device({const!r})")
        return Outcome(Value(kinds=DEVICE, places=places, strength=CERTAIN, why=why))
    why = first.why or Why("torch.device(...)")
    return Outcome(Value(kinds=DEVICE, places=ON_DEVICE, strength=LIKELY, why=why, params=first.params))


CALLS: dict[str, Callable[[Args], Outcome]] = {
    "torch.device": device,
    "torch.save": serialized,
    "pickle.dumps": serialized,
    "pickle.dump": serialized,
    "cloudpickle.dumps": serialized,
    "logging.getLogger": logger,
    "torch.Event": lambda args: Outcome(EVENT),
    "torch.Stream": lambda args: Outcome(STREAM),
}
