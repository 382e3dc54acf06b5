"""Library functions that look at the data before or after they work: comparisons, linear algebra, random, training."""

from __future__ import annotations

from collections.abc import Callable

from dsv4prof.sync.code.effects import Args, Effect, Outcome
from dsv4prof.sync.code.semantics import forms
from dsv4prof.sync.code.semantics.listed import listed
from dsv4prof.sync.code.semantics.reads import reading
from dsv4prof.sync.code.semantics.tell import PRODUCT, deciding, derived, effect, every, on_device
from dsv4prof.sync.code.values import (
    CERTAIN,
    HOST_NUMBER,
    LIKELY,
    POSSIBLE,
    TENSOR,
    UNKNOWN,
    Value,
    sequence_of,
)

Handler = Callable[[Value, Args], Outcome | None]


def _source(receiver: Value, args: Args) -> Value:
    return deciding((receiver, *every(args))) or receiver


def _told(form: str, source: Value, reason: str, times: int = 1, level: int = CERTAIN) -> tuple[Effect, ...]:
    return (effect(form, source, reason, times=times, level=level),) if on_device(source) else ()


def equal(receiver: Value, args: Args) -> Outcome:
    """`torch.equal(x, y)`: returns early for the same tensor."""
    other = args.get(0, "other")
    if other is receiver and receiver.same:
        # The same local: two reads of attributes may give one value for two objects.
        return Outcome(HOST_NUMBER)
    return Outcome(HOST_NUMBER, _told(forms.TORCH_EQUAL, _source(receiver, args), "the answer is a Python bool"))


def allclose(receiver: Value, args: Args) -> Outcome:
    """`torch.allclose(x, y)`."""
    return Outcome(HOST_NUMBER, _told(forms.ALLCLOSE, _source(receiver, args), "the answer is a Python bool"))


def is_nonzero(receiver: Value, args: Args) -> Outcome:
    """`torch.is_nonzero(x)`."""
    return Outcome(HOST_NUMBER, reading(forms.IS_NONZERO, receiver, "the answer is a Python bool"))


def assert_close(receiver: Value, args: Args) -> Outcome:
    """`torch.testing.assert_close(x, y)`."""
    return Outcome(HOST_NUMBER, _told(forms.ASSERT_CLOSE, _source(receiver, args), "the comparison is read"))


def normal(receiver: Value, args: Args) -> Outcome:
    """`torch.normal(mean, std)`: a tensor of deviations is checked for negative ones."""
    std = args.get(0, "std")
    source = deciding((receiver, std) if std is not None else (receiver,)) or receiver
    effects: tuple[Effect, ...] = ()
    if std is not None and on_device(std):
        effects = _told(forms.NORMAL_TENSOR_STD, std, "a tensor of deviations is checked for negative ones")
    return Outcome(derived(source, dtype="float", ndim=source.ndim), effects)


def masked_fill(receiver: Value, args: Args) -> Outcome:
    """`x.masked_fill(mask, value)`: a value on the device is read."""
    value = args.get(1, "value")
    effects: tuple[Effect, ...] = ()
    if value is not None and on_device(value):
        effects = reading(forms.MASKED_FILL_TENSOR, value, "the value is a device tensor, and is read")
    return Outcome(
        derived(_source(receiver, Args(args.positional[:1])), dtype=receiver.dtype, ndim=receiver.ndim), effects
    )


def index_fill(receiver: Value, args: Args) -> Outcome:
    """`x.index_fill(dim, index, value)`."""
    value = args.get(2, "value")
    effects: tuple[Effect, ...] = ()
    if value is not None and on_device(value):
        effects = reading(forms.INDEX_FILL_TENSOR, value, "the value is a device tensor, and is read")
    return Outcome(derived(receiver, ndim=receiver.ndim), effects)


def segment_reduce(receiver: Value, args: Args) -> Outcome:
    """`torch.segment_reduce(x, reduce, lengths=..., unsafe=False)`."""
    unsafe = args.get(-1, "unsafe")
    if unsafe is not None and unsafe.const is not False:
        return Outcome(derived(receiver))
    reason = "the lengths are checked on the host"
    return Outcome(derived(receiver), _told(forms.SEGMENT_REDUCE_CHECK, receiver, reason))


def multinomial(receiver: Value, args: Args) -> Outcome:
    """`torch.multinomial(p, n)`: old versions read whether the probabilities are valid."""
    result = derived(receiver, dtype="int", ndim=receiver.ndim)
    return Outcome(result, _told(forms.MULTINOMIAL_OLD, receiver, "the probabilities are checked on the host"))


def ctc_loss(receiver: Value, args: Args) -> Outcome:
    """`F.ctc_loss(log_probs, targets, input_lengths, target_lengths)`."""
    result = derived(receiver, ndim=0)
    given = (receiver, args.get(1, "input_lengths"), args.get(2, "target_lengths"))
    device = next((each for each in reversed(given) if each is not None and on_device(each)), None)
    if device is None:
        return Outcome(result)
    reason = "its lengths are copied to the host, those of the host to the device"
    return Outcome(result, _told(forms.CTC_LOSS_DEVICE_LENGTHS, device, reason))


# Linear algebra. Everything with a suffix _ex leaves the check to the caller.

_CHECKED = listed(
    "inv solve cholesky lu_factor eigh eigvalsh eig eigvals inverse solve_triangular_checked ldl_factor tensorinv "
    "tensorsolve cholesky_inverse_checked lu_solve_checked"
)
_CONVERGES = listed("svd svdvals pinv matrix_rank lstsq cond pinverse svd_lowrank pca_lowrank")
_PAIRS = listed("lu_factor eigh eig cholesky_ex inv_ex solve_ex qr slogdet ldl_factor geqrf symeig")


def _checked(receiver: Value, args: Args) -> Outcome:
    source = _source(receiver, args)
    reason = "whether it succeeded is read from the device"
    return Outcome(derived(source, dtype="", ndim=None), _told(forms.LINALG_CHECK, source, reason))


def _converges(receiver: Value, args: Args) -> Outcome:
    source = _source(receiver, args)
    return Outcome(derived(source, dtype=""), _told(forms.LINALG_CONVERGENCE, source, "the convergence is read"))


def _matrix_exp(receiver: Value, args: Args) -> Outcome:
    return Outcome(derived(receiver), _told(forms.MATRIX_EXP, receiver, "the norms are read", times=6))


def _matrix_norm(receiver: Value, args: Args) -> Outcome:
    order = args.get(0, "ord")
    result = derived(receiver, ndim=0)
    if order is not None and (order.const in (2, -2, "nuc")):
        return Outcome(
            result, _told(forms.LINALG_CONVERGENCE, receiver, "this norm takes a singular value decomposition")
        )
    return Outcome(result)


def _matrix_power(receiver: Value, args: Args) -> Outcome:
    power = args.get(0, "n")
    if power is not None and type(power.const) is int and power.const < 0:
        return _checked(receiver, args)
    return Outcome(derived(receiver, ndim=receiver.ndim))


def _several(receiver: Value, args: Args) -> Outcome:
    return Outcome(sequence_of(derived(_source(receiver, args), dtype=""), "tuple"))


LINALG: dict[str, Handler] = {
    **dict.fromkeys(_PAIRS, _several),
    **dict.fromkeys(_CHECKED, _checked),
    **dict.fromkeys(_CONVERGES, _converges),
    "matrix_exp": _matrix_exp,
    "matrix_norm": _matrix_norm,
    "norm": _matrix_norm,
    "matrix_power": _matrix_power,
}

CHECKS: dict[str, Handler] = {
    "equal": equal,
    "allclose": allclose,
    "is_nonzero": is_nonzero,
    "normal": normal,
    "masked_fill": masked_fill,
    "masked_fill_": masked_fill,
    "index_fill": index_fill,
    "index_fill_": index_fill,
    "ctc_loss": ctc_loss,
    "segment_reduce": segment_reduce,
    "multinomial": multinomial,
    "matrix_exp": _matrix_exp,
    "inverse": _checked,
    "cholesky": _checked,
    "svd": _converges,
    "pinverse": _converges,
    "svd_lowrank": _converges,
    "pca_lowrank": _converges,
}


# Training.


def backward(receiver: Value, args: Args) -> Outcome:
    """`x.backward()`: of what a product made, zeros are looked for on the host."""
    if receiver.ref != PRODUCT:
        return Outcome(HOST_NUMBER)
    reason = "the backward pass of a product looks for zeros"
    return Outcome(HOST_NUMBER, _told(forms.PROD_BACKWARD, receiver, reason, level=LIKELY))


def clip_grad(args: Args) -> Outcome:
    """`clip_grad_norm_(parameters, max_norm, norm_type, error_if_nonfinite)`."""
    source = deciding(args.positional[:1]) or Value(kinds=TENSOR, places=2 | 4, strength=LIKELY)
    strict = args.get(3, "error_if_nonfinite")
    if strict is None or strict.const is False:
        return Outcome(derived(source, ndim=0))
    level = CERTAIN if strict.const is True else POSSIBLE
    return Outcome(derived(source, ndim=0), _told(forms.CLIP_GRAD_NONFINITE, source, "the norm is tested", level=level))


def detect_anomaly(args: Args) -> Outcome:
    """`torch.autograd.detect_anomaly(check_nan=True)`."""
    if any(value.const is False for value in every(args)):
        return Outcome(Value(kinds=UNKNOWN))
    reason = "every backward result is tested for NaN on the host"
    return Outcome(Value(kinds=UNKNOWN), (Effect(forms.DETECT_ANOMALY, LIKELY, reason),))


def distribution(name: str, args: Args) -> Outcome:
    """`torch.distributions.Categorical(probs=...)`: parameters are validated, unless validate_args=False."""
    result = Value(kinds=128, ref=f"torch.distributions.{name}", strength=CERTAIN)
    validate = args.keywords.get("validate_args")
    if validate is not None and validate.const is False:
        return Outcome(result)
    source = deciding(every(args))
    if source is None or not on_device(source):
        return Outcome(result)
    return Outcome(result, _told(forms.DISTRIBUTION_VALIDATION, source, "the parameters are validated on the host"))
