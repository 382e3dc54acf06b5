"""Calls by their resolved dotted name, and methods by their receiver."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from dsv4prof.sync.code.effects import Args, Outcome
from dsv4prof.sync.code.semantics import checks, dynamic
from dsv4prof.sync.code.semantics.arrays import numpy_call, type_of
from dsv4prof.sync.code.semantics.builtin import BUILTINS
from dsv4prof.sync.code.semantics.copy_into import foreach_copy
from dsv4prof.sync.code.semantics.devices import device_of
from dsv4prof.sync.code.semantics.factories import FACTORIES
from dsv4prof.sync.code.semantics.from_data import FROM_DATA, tensor_class
from dsv4prof.sync.code.semantics.listed import listed
from dsv4prof.sync.code.semantics.mathematics import math_call
from dsv4prof.sync.code.semantics.operations import OPERATIONS, operate
from dsv4prof.sync.code.semantics.runtime import (
    CALLS,
    RUNTIMES,
    distributed,
    logged,
    optimizer,
    runtime,
)
from dsv4prof.sync.code.semantics.tell import HOST_RESULT, after, deciding, derived, every, likely_tensor
from dsv4prof.sync.code.values import (
    ANYTHING,
    CALLABLE,
    CERTAIN,
    DTYPE,
    HOST_NUMBER,
    LIKELY,
    OBJECT,
    SEQUENCE,
    TENSOR,
    UNKNOWN,
    Value,
)

_FUNCTIONAL = ("nn.functional.", "functional.", "special.", "fft.", "_C._nn.", "Tensor.", "_refs.", "signal.windows.")
# Names directly under torch that make no tensor.
_HOST_FUNCTIONS = listed(
    "is_tensor is_floating_point is_complex numel get_default_dtype set_default_dtype get_default_device finfo "
    "iinfo Size manual_seed seed initial_seed is_grad_enabled is_inference_mode_enabled get_num_threads "
    "set_num_threads compile promote_types can_cast result_type get_rng_state_ set_printoptions "
    "use_deterministic_algorithms is_autocast_enabled set_grad_enabled no_grad inference_mode enable_grad "
    "autocast set_default_device is_same_size typename is_storage are_deterministic_algorithms_enabled "
    "set_float32_matmul_precision get_autocast_dtype _check _assert Generator broadcast_shapes is_distributed "
    "get_device_module get_autocast_gpu_dtype is_vulkan_available set_warn_always"
)
_DTYPES = {
    "bool": "bool",
    "uint8": "uint8",
    **dict.fromkeys(listed("int int8 int16 int32 int64 long short uint16 uint32 uint64"), "int"),
    **dict.fromkeys(listed("float float16 float32 float64 double half bfloat16"), "float"),
}
# These look at device= themselves.
_LIKE = listed("zeros_like ones_like empty_like full_like rand_like randn_like randint_like")
_SPECIAL: dict[str, Callable[[Args], Outcome]] = {
    "_foreach_copy_": foreach_copy,
    "load": lambda args: Outcome(ANYTHING),
    "nn.utils.clip_grad_norm_": checks.clip_grad,
    "nn.utils.rnn.pack_padded_sequence": dynamic.pack_padded,
    "nn.utils.rnn.unpad_sequence": dynamic.unpad,
    "autograd.detect_anomaly": checks.detect_anomaly,
    "autograd.set_detect_anomaly": checks.detect_anomaly,
}


def named(dotted: str) -> Value | None:
    """The value of a dotted name that is not called: torch.float32, math.pi, numpy.int32."""
    if dotted.startswith("torch."):
        dtype = _DTYPES.get(dotted[6:])
        if dtype is not None or dotted[6:].startswith("float8"):
            return Value(kinds=DTYPE, dtype=dtype or "float", strength=CERTAIN)
        return None
    if dotted.startswith("numpy."):
        kind = type_of(dotted[6:])
        # numpy.float32 is a dtype and makes scalars.
        return Value(kinds=DTYPE | CALLABLE, ref=dotted, dtype=kind, strength=CERTAIN) if kind else None
    if dotted in ("math.pi", "math.inf", "math.e", "math.nan", "numpy.inf", "numpy.nan"):
        return HOST_NUMBER
    return None


def call(dotted: str, args: Args) -> Outcome | None:
    """A call of a resolved dotted name; None when nothing is known of it."""
    handler = BUILTINS.get(dotted)
    if handler is not None:
        return handler(args)
    head, _, rest = dotted.partition(".")
    if head == "torch":
        return _torch(rest, args)
    if head == "numpy":
        return numpy_call(rest, args)
    if head == "math":
        return math_call(rest, args)
    by_name = CALLS.get(dotted)
    if by_name is not None:
        return by_name(args)
    if head == "logging":
        return logged(rest, args)
    return None


def _torch(name: str, args: Args) -> Outcome | None:
    factory = FACTORIES.get(name) or FROM_DATA.get(name)
    if factory is not None:
        return factory(args)
    whole = CALLS.get(f"torch.{name}") or _SPECIAL.get(name)
    if whole is not None:
        return whole(args)
    head, _, rest = name.partition(".")
    if not rest:
        return _function(name, args) if not name.endswith("Tensor") else tensor_class(name, args)
    if head in RUNTIMES:
        return tensor_class(name, args) if rest.endswith("Tensor") else runtime(rest, args)
    if head == "distributed":
        return distributed(rest.rpartition(".")[2], args)
    if head == "linalg":
        return _linalg(rest, args)
    if head == "distributions":
        return checks.distribution(rest.rpartition(".")[2], args)
    if name == "testing.assert_close":
        return checks.assert_close(args.positional[0] if args.positional else ANYTHING, after(args, 1))
    if name == "nn.utils.rnn.pad_sequence":
        return _function("pad_sequence", args)
    for prefix in _FUNCTIONAL:
        if name.startswith(prefix):
            return _function(name[len(prefix) :], args)
    return _elsewhere(head, rest, args)


def _elsewhere(head: str, rest: str, args: Args) -> Outcome | None:
    """Classes of torch.nn, custom operators, and the parts of torch that make no tensors."""
    last = rest.rpartition(".")[2]
    if head == "nn" and last[:1].isupper():
        target = device_of(args.keywords.get("device"))
        return Outcome(Value(kinds=OBJECT, ref=f"torch.nn.{last}", places=target.places, strength=CERTAIN))
    if head in ("amp", "cuda") and last == "GradScaler":
        return Outcome(Value(kinds=OBJECT, ref="torch.amp.GradScaler", strength=CERTAIN))
    if head == "optim" and last[:1].isupper():
        return optimizer(last, args)
    if head == "ops":
        return _custom(rest, args)
    if head in ("sparse", "nested", "masked", "autograd"):
        source = deciding(every(args))
        return Outcome(derived(source, dtype="")) if source is not None else None
    return None


def _custom(name: str, args: Args) -> Outcome | None:
    """`torch.ops.aten.x(...)` is torch's own operator; of others only the memory of the result is known."""
    library, _, operator = name.partition(".")
    if library == "aten":
        return _function(operator.partition(".")[0], args)
    source = deciding(every(args))
    if source is None:
        return None
    return Outcome(replace(derived(source, dtype=""), kinds=TENSOR | UNKNOWN, strength=min(source.strength, LIKELY)))


def _function(name: str, args: Args) -> Outcome | None:
    """A function of torch that takes tensors, made where `device=` says if it says so."""
    outcome = _operator(name, args)
    given = args.keywords.get("device")
    if outcome is None or given is None or given.const is None or not outcome.value.kinds & TENSOR or name in _LIKE:
        return outcome
    target = device_of(given)
    value = replace(outcome.value, places=target.places, strength=target.strength, why=target.why)
    return Outcome(value, outcome.effects)


def _operator(name: str, args: Args) -> Outcome | None:
    """The operator of the first tensor."""
    if name in _HOST_FUNCTIONS or name[:1].isupper():
        return HOST_RESULT if not name[:1].isupper() else None
    if name == "einsum":
        return _plain(args)
    receiver, rest = _first(args)
    if receiver is None:
        return _plain(args)
    if receiver.kinds & TENSOR:
        if receiver.kinds & UNKNOWN:
            receiver = replace(receiver, kinds=TENSOR, strength=max(receiver.strength, LIKELY))
        return operate(name, receiver, rest)
    if receiver.kinds & SEQUENCE and deciding((receiver,)) is not None:
        return operate(name, receiver, rest)
    source = deciding(every(args))
    if source is None:
        source = _assumed_argument(name, receiver)
        if source is None:
            return _plain(args)
        return operate(name, source, rest)
    # repeat_interleave(unknown, counts), where(unknown, x, y): the first is a tensor beside the others.
    return operate(name, replace(derived(source, dtype=""), strength=min(source.strength, LIKELY)), rest)


def _assumed_argument(name: str, receiver: Value) -> Value | None:
    """Of an unknown first argument: that a function of torch takes it says that it is a tensor."""
    if receiver.kinds & UNKNOWN and name in OPERATIONS:
        return replace(likely_tensor(f"an argument of torch.{name}"), params=receiver.params)
    return None


def _first(args: Args) -> tuple[Value | None, Args]:
    if args.positional:
        return args.positional[0], after(args, 1)
    for name in ("input", "self", "tensors", "condition", "sorted_sequence", "elements", "data", "mean"):
        value = args.keywords.get(name)
        if value is not None:
            return value, after(args, 0, name)
    return None, args


def _plain(args: Args) -> Outcome:
    """A function of torch of which no more is known than that it makes a tensor beside its arguments."""
    source = deciding(every(args))
    if source is not None:
        return Outcome(derived(source, dtype=""))
    return Outcome(likely_tensor("made by a function of torch from unknown values"))


def _linalg(name: str, args: Args) -> Outcome | None:
    receiver, rest = _first(args)
    if receiver is None or not receiver.kinds & TENSOR:
        return _plain(args)
    if name == "inv" and (checked := args.keywords.get("check_errors")) is not None and checked.const is False:
        return _plain(args)
    handler = checks.LINALG.get(name)
    return handler(receiver, rest) if handler is not None else operate(name, receiver, rest)


# Methods.
