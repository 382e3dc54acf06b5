"""Operators whose kernel reads something back: a count, a check, a convergence flag.

Each rule names the place in ATen that reads. Operators that torch composes of others (one_hot, argwhere, linalg.inv)
have no rule: dispatch shows the part that waits.
"""

from __future__ import annotations

from dsv4prof.model.syncs import Kind
from dsv4prof.sync.runtime.calls import OpCall, Reason
from dsv4prof.sync.runtime.reasons.arguments import argument, is_tensor, on_device, same_values, tensors_in
from dsv4prof.sync.runtime.reasons.named import named
from dsv4prof.sync.runtime.reasons.versions import within

# SummaryOps and TensorModeKernel: up to this many elements a dimension one block finds the mode.
_MODE_IN_ONE_BLOCK = 2048


def scalar(call: OpCall) -> tuple[Reason, ...]:
    """aten::_local_scalar_dense: item, int, bool, and whatever needs a number of a tensor."""
    if not on_device(call, argument(call, 0, "self")):
        return ()
    return (named("item", "a device value is read on the host"),)


def repeat_interleave(call: OpCall) -> tuple[Reason, ...]:
    repeats = argument(call, 0, "repeats")
    if argument(call, 1, "output_size") is not None or not on_device(call, repeats) or not repeats.numel():
        return ()
    text = "without output_size the sum is read back, and the smallest repeat for a check"
    return (named("repeat-interleave-tensor", text, times=2),)


def bincount(call: OpCall) -> tuple[Reason, ...]:
    values = argument(call, 0, "self")
    if not on_device(call, values) or not values.numel():
        return ()
    return (named("bincount", "smallest and largest value are read back, whatever minlength is"),)


def histc(call: OpCall) -> tuple[Reason, ...]:
    low, high = argument(call, 2, "min", 0), argument(call, 3, "max", 0)
    if not on_device(call, argument(call, 0, "self")) or low != high:
        return ()
    return (named("histc-auto-range", "without min and max they are read back"),)


def isin(call: OpCall) -> tuple[Reason, ...]:
    """A few values are compared by broadcast; more are sorted and made unique (TensorCompare.cpp)."""
    elements, wanted = argument(call, 0, "elements"), argument(call, 1, "test_elements")
    if not any(on_device(call, one) for one in (elements, wanted)) or not is_tensor(wanted):
        return ()
    count = elements.numel() if is_tensor(elements) else 1
    if wanted.numel() < 10 * count**0.145:
        return ()
    unique = bool(argument(call, 2, "assume_unique", False))
    text = "many values are sorted, and the count of unique ones is read back"
    return (named("isin", text, times=1 if unique else 3),)


def mode(call: OpCall) -> tuple[Reason, ...]:
    values = argument(call, 0, "self")
    if not on_device(call, values):
        return ()
    size = values.shape[argument(call, 1, "dim", -1)] if values.dim() else 1
    if size <= _MODE_IN_ONE_BLOCK:
        return ()
    return (named("mode-large", "over 2048 elements thrust sorts, and waits several times"),)


def searchsorted(call: OpCall) -> tuple[Reason, ...]:
    sorter = argument(call, 5, "sorter")
    if not is_tensor(sorter) or not on_device(call, sorter):
        return ()
    return (named("searchsorted-sorter", "the range of `sorter` is read back for a check"),)


def equal(call: OpCall) -> tuple[Reason, ...]:
    left, right = argument(call, 0, "self"), argument(call, 1, "other")
    if not on_device(call, left) or tuple(left.shape) != tuple(right.shape):
        return ()
    if not left.numel() or same_values(left, right):
        return ()
    return (named("torch-equal", "the answer is a host bool"),)


def allclose(call: OpCall) -> tuple[Reason, ...]:
    if not any(on_device(call, one) for one in tensors_in(call.args)):
        return ()
    return (named("allclose", "the answer is a host bool"),)


def normal(call: OpCall) -> tuple[Reason, ...]:
    """std given as a tensor is checked to be no less than 0 (DistributionTemplates.h)."""
    std = argument(call, 1, "std")
    if not on_device(call, std) or not std.numel():
        return ()
    return (named("normal-tensor-std", "a tensor of deviations is checked on the host"),)


def multinomial(call: OpCall, version: tuple[int, ...]) -> tuple[Reason, ...]:
    if not on_device(call, argument(call, 0, "self")) or not within("multinomial-old", version):
        return ()
    return (named("multinomial-old", "up to torch 2.5 probabilities were checked on the host"),)


def segment_reduce(call: OpCall) -> tuple[Reason, ...]:
    """`unsafe` skips the two checks of the lengths."""
    lengths = call.kwargs.get("lengths")
    if call.kwargs.get("unsafe", False) or not on_device(call, lengths):
        return ()
    return (named("segment-reduce-check", "lengths are checked on the host"),)


def unique(call: OpCall) -> tuple[Reason, ...]:
    values = argument(call, 0, "self")
    if not on_device(call, values) or not values.numel():
        return ()
    if call.name.endswith(("unique_dim", "unique_dim_consecutive")):
        text = "thrust waits for the number of unique rows, and nothing warns"
        return (named("unique-dim", text, kind=Kind.SILENT),)
    if call.name.endswith("unique_consecutive"):
        dim = argument(call, 3, "dim")
        if dim is not None:
            return (named("unique-dim", "thrust waits for the number of unique rows", kind=Kind.SILENT),)
        return (named("unique-consecutive", "the number of unique values is read back"),)
    return (named("unique", "the number of unique values is read back"),)


def coalesce(call: OpCall) -> tuple[Reason, ...]:
    values = argument(call, 0, "self")
    if not on_device(call, values):
        return ()
    return (named("coalesce", "thrust sorts the places and waits, and nothing warns", kind=Kind.SILENT),)


def ctc_loss(call: OpCall) -> tuple[Reason, ...]:
    """Lengths on the device are read by the host, those on the host are uploaded (LossCTC.cu)."""
    if not on_device(call, argument(call, 0, "log_probs")):
        return ()
    lengths = tensors_in(tuple(call.args[2:4]))
    if any(on_device(call, one) for one in lengths):
        return (named("ctc-loss-device-lengths", "lengths on the device are read by the host"),)
    return (named("ctc-loss-device-lengths", "lengths and offsets made on the host are uploaded", times=1),)


def reading(form: str, text: str, *, kind: Kind = Kind.SYNC, times: int | None = None) -> ReadRule:
    """A rule for operators that wait whenever a tensor on a device is given."""
    return ReadRule(form, text, kind, times)


class ReadRule:
    """See `reading`."""

    def __init__(self, form: str, text: str, kind: Kind, times: int | None) -> None:
        self._form, self._text, self._kind, self._times = form, text, kind, times

    def __call__(self, call: OpCall) -> tuple[Reason, ...]:
        if not any(on_device(call, one) for one in tensors_in((*call.args, *call.kwargs.values()))):
            return ()
        return (named(self._form, self._text, kind=self._kind, times=self._times),)
