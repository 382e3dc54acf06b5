"""Operators whose result has as many elements as the data says: the host reads the count, then allocates."""

from __future__ import annotations

from msgspec.structs import replace

from dsv4prof.sync.code.effects import Args, Effect, Outcome
from dsv4prof.sync.code.semantics import forms
from dsv4prof.sync.code.semantics.tell import deciding, derived, device_within, effect, on_device, tensor_within
from dsv4prof.sync.code.values import (
    CERTAIN,
    HOST,
    LIKELY,
    NONE,
    NOTHING,
    ON_DEVICE,
    POSSIBLE,
    TENSOR,
    UNKNOWN,
    Value,
    bounds,
    sequence,
    sequence_of,
)

_COUNT = "the host reads how many elements the result has"


def _told(form: str, source: Value, reason: str = _COUNT, level: int = CERTAIN, times: int = 1) -> tuple[Effect, ...]:
    if not on_device(source) or source.numel == 0:
        return ()
    return (effect(form, source, reason, level=level, times=times),)


def nonzero(receiver: Value, args: Args) -> Outcome:
    """`x.nonzero(as_tuple=False)`."""
    as_tuple = args.keywords.get("as_tuple")
    column = derived(receiver, dtype="int", ndim=1)
    if as_tuple is not None and as_tuple.const is not False:
        items = (column,) * receiver.ndim if receiver.ndim else None
        value = sequence(items) if items else sequence_of(column, "tuple")
        return Outcome(value, _told(forms.NONZERO_AS_TUPLE, receiver))
    return Outcome(replace(column, ndim=2), _told(forms.NONZERO, receiver))


def argwhere(receiver: Value, args: Args) -> Outcome:
    """`torch.argwhere(x)`."""
    return Outcome(derived(receiver, dtype="int", ndim=2), _told(forms.ARGWHERE, receiver))


def where(receiver: Value, args: Args) -> Outcome:
    """`torch.where(c)` reads a count; `torch.where(c, x, y)` does not, but copies a host tensor for x or y."""
    if not args.positional and not args.keywords and not args.open:
        column = derived(receiver, dtype="int", ndim=1)
        return Outcome(sequence_of(column, "tuple"), _told(forms.WHERE_CONDITION_ONLY, receiver))
    branches = [value for value in (args.get(0, "input"), args.get(1, "other")) if value is not None]
    source = deciding((receiver, *branches)) or receiver
    effects: tuple[Effect, ...] = ()
    if on_device(source):
        for branch in branches:
            # A host tensor of more dimensions would raise.
            if branch.kinds == TENSOR and not branch.places & ON_DEVICE and branch.ndim in (0, None):
                level = CERTAIN if branch.ndim == 0 else POSSIBLE
                reason = "a host tensor is copied to the device"
                effects = (*effects, effect(forms.WHERE_HOST_TENSOR, source, reason, level=level))
    dtype = next((branch.dtype for branch in branches if branch.kinds & TENSOR), "")
    ndim = receiver.ndim if any(branch.ndim == receiver.ndim or branch.kinds == HOST for branch in branches) else None
    return Outcome(derived(source, dtype=dtype, ndim=ndim), effects)


def masked_select(receiver: Value, args: Args) -> Outcome:
    """`x.masked_select(mask)`."""
    source = deciding((receiver, *args.positional, *args.keywords.values())) or receiver
    return Outcome(derived(source, dtype=receiver.dtype, ndim=1), _told(forms.MASKED_SELECT, source))


def unique(receiver: Value, args: Args) -> Outcome:
    """`x.unique(...)`: one tensor, or a tuple when inverse or counts are asked for."""
    dim = args.get(3, "dim")
    form = forms.UNIQUE if dim is None or dim.const is None else forms.UNIQUE_DIM
    return Outcome(_with_extras(receiver, args, 1), _told(form, receiver))


def unique_consecutive(receiver: Value, args: Args) -> Outcome:
    """`x.unique_consecutive(...)`."""
    dim = args.get(2, "dim")
    form = forms.UNIQUE_CONSECUTIVE if dim is None or dim.const is None else forms.UNIQUE_DIM
    return Outcome(_with_extras(receiver, args, 0), _told(form, receiver))


def _with_extras(receiver: Value, args: Args, first: int) -> Value:
    extras = [args.get(first, "return_inverse"), args.get(first + 1, "return_counts")]
    wanted = [flag for flag in extras if flag is not None and flag.const is not False]
    values = derived(receiver, ndim=1)
    if not wanted:
        return values
    return sequence((values, *(derived(receiver, dtype="int") for _ in wanted)))


def bincount(receiver: Value, args: Args) -> Outcome:
    """`x.bincount(weights, minlength)`: two reads, whatever the minimum length."""
    return Outcome(derived(receiver, dtype="int", ndim=1), _told(forms.BINCOUNT, receiver, times=2))


def histc(receiver: Value, args: Args) -> Outcome:
    """`x.histc(bins, min=0, max=0)`: equal bounds mean that the range is read from the data."""
    low, high = args.get(1, "min"), args.get(2, "max")
    result = derived(receiver, ndim=1)
    if low is None and high is None:
        return Outcome(result, _told(forms.HISTC_AUTO_RANGE, receiver, "the range is read from the data"))
    if low is not None and high is not None and low.const is not NOTHING and low.const == high.const:
        return Outcome(result, _told(forms.HISTC_AUTO_RANGE, receiver, "the range is read from the data"))
    return Outcome(result)


def repeat_interleave(receiver: Value, args: Args) -> Outcome:
    """`x.repeat_interleave(repeats, dim, output_size)`, and of one tensor `torch.repeat_interleave(repeats)`."""
    repeats = args.get(0, "repeats")
    single = repeats is None and not args.open
    counts = receiver if single else repeats
    size = args.get(2, "output_size")
    dim = args.get(1, "dim")
    ndim = 1 if dim is None or dim.const is None else receiver.ndim
    source = deciding(value for value in (receiver, repeats) if value is not None) or receiver
    result = derived(source, dtype="int" if single else receiver.dtype, ndim=ndim)
    if counts is None:
        return Outcome(result)
    if not counts.kinds & TENSOR:
        return Outcome(result, _listed_repeats(receiver, counts) if size is None or size.kinds & NONE else ())
    if counts.kinds & UNKNOWN and counts.strength == POSSIBLE and counts.kinds & ~(UNKNOWN | TENSOR):
        return Outcome(result)
    if not on_device(counts) or counts.numel == 0:
        return Outcome(result)
    return Outcome(result, _counted(_beside(receiver, counts), size))


def _beside(receiver: Value, counts: Value) -> Value:
    """What is repeated and how often have to lie on one device: the surer of them speaks for the other."""
    if counts.strength >= LIKELY or not receiver.kinds & TENSOR or not on_device(receiver):
        return counts
    return replace(counts, strength=min(LIKELY, max(counts.strength, receiver.strength)))


def _listed_repeats(receiver: Value, counts: Value) -> tuple[Effect, ...]:
    """repeats that are no tensor: an int is expanded, a list or array is no argument that torch takes."""
    if counts.kinds == UNKNOWN and on_device(receiver):
        reason = "repeats may be a tensor, and output_size is not given"
        return (effect(forms.REPEAT_INTERLEAVE_TENSOR, receiver, reason, level=POSSIBLE, others=(counts,)),)
    return ()


def _counted(counts: Value, size: Value | None) -> tuple[Effect, ...]:
    form = forms.REPEAT_INTERLEAVE_TENSOR
    if size is None or size.kinds == NONE:
        reason = "repeats is a device tensor and no output_size is given"
        return (effect(form, counts, reason, times=2),)
    if on_device(size):
        reason = "output_size is a device tensor"
        return (effect(forms.REPEAT_INTERLEAVE_OUTPUT_SIZE_TENSOR, size, reason, others=(counts,)),)
    effects: tuple[Effect, ...] = ()
    if size.kinds & NONE:
        reason = "output_size is None on some paths"
        effects = (effect(form, counts, reason, level=LIKELY, times=2, others=(size,)),)
    return effects + _exactness(counts, size)


def _exactness(counts: Value, size: Value) -> tuple[Effect, ...]:
    """A hazard where nothing shows that output_size is the exact sum of the repeats."""
    if counts.same and (size.total == counts.same or _mirrored(size.total) == _path(counts.same)):
        return ()
    padded = bool(counts.same) and bounds(size) == counts.same
    reason = (
        "output_size is a length, a largest or a product of one, not the sum of the repeats"
        if padded
        else "nothing in the source shows that output_size is the exact sum of the repeats"
    )
    return (
        Effect(
            forms.OUTPUT_SIZE_NOT_EXACT,
            LIKELY if padded else POSSIBLE,
            reason,
            counts.why,
            params=counts.params | size.params,
        ),
    )


_MIRRORS = ("_list", "_cpu", "_host", "_np", "_py", "_h")


def _path(name: str) -> str:
    """`lens` of the name `lens@12`."""
    return name.partition("@")[0]


def _mirrored(total: str) -> str:
    """`counts` of the sum of `counts_list`: by its name the same numbers on the host."""
    path = _path(total)
    mark = next((mark for mark in _MIRRORS if path.endswith(mark)), "")
    return path.removesuffix(mark) if mark else "@"


def one_hot(receiver: Value, args: Args) -> Outcome:
    """`F.one_hot(x, num_classes=-1)`: without a number of classes the largest value is read."""
    classes = args.get(0, "num_classes")
    result = derived(receiver, dtype="int", ndim=receiver.ndim + 1 if receiver.ndim is not None else None)
    if classes is None or (classes.const is not NOTHING and classes.const == -1):
        return Outcome(result, _told(forms.ONE_HOT_AUTO, receiver, "the number of classes is read from the data"))
    return Outcome(result)


def isin(receiver: Value, args: Args) -> Outcome:
    """`torch.isin(elements, test_elements)`: few test elements are compared, many go through unique."""
    test = args.get(0, "test_elements")
    source = deciding((receiver, test) if test is not None else (receiver,)) or receiver
    result = derived(source, dtype="bool", ndim=receiver.ndim)
    if test is None or not test.kinds & TENSOR:
        return Outcome(result)
    # Of unknown sizes: a handful of stop tokens is compared, and nobody looks for many in many.
    level = POSSIBLE
    if test.numel is not None and receiver.numel is not None:
        if test.numel < 10 * receiver.numel**0.145:
            return Outcome(result)
        level = CERTAIN
    elif test.numel is not None and test.numel <= 10:
        return Outcome(result)
    reason = "unless one side is short, the distinct elements are counted"
    return Outcome(result, _told(forms.ISIN, source, reason, level))


def mode(receiver: Value, args: Args) -> Outcome:
    """`x.mode()`: a sort in library code that waits where a row has more than 2048 elements."""
    ndim = receiver.ndim - 1 if receiver.ndim else receiver.ndim
    result = sequence((derived(receiver, ndim=ndim), derived(receiver, dtype="int", ndim=ndim)))
    if receiver.numel is not None and receiver.numel <= 2048:
        return Outcome(result)
    level = CERTAIN if receiver.numel is not None and receiver.ndim == 1 else POSSIBLE
    return Outcome(result, _told(forms.MODE_LARGE, receiver, "a row of more than 2048 elements is sorted", level))


def searchsorted(receiver: Value, args: Args) -> Outcome:
    """`torch.searchsorted(sorted, values, sorter=None)`: a sorter is checked on the host."""
    values = args.get(0, "input")
    sorter = args.get(-1, "sorter")
    source = deciding((receiver, values) if values is not None else (receiver,)) or receiver
    result = derived(source, dtype="int", ndim=values.ndim if values is not None else None)
    if sorter is None or sorter.const is None:
        return Outcome(result)
    return Outcome(result, _told(forms.SEARCHSORTED_SORTER, source, "the bounds of the sorter are checked"))


def to_sparse(receiver: Value, args: Args) -> Outcome:
    """`x.to_sparse()` and its layouts."""
    return Outcome(derived(receiver, ndim=receiver.ndim), _told(forms.TO_SPARSE, receiver))


def coalesce(receiver: Value, args: Args) -> Outcome:
    """`s.coalesce()`."""
    return Outcome(derived(receiver), _told(forms.COALESCE, receiver, times=5))


def combinations(receiver: Value, args: Args) -> Outcome:
    """`torch.combinations(x)`: masked_select inside."""
    return Outcome(derived(receiver, ndim=2), _told(forms.COMBINATIONS, receiver))


def pack_padded(args: Args) -> Outcome:
    """`pack_padded_sequence(x, lengths, enforce_sorted=True)`: lengths are wanted on the host, order on the device."""
    source = tensor_within(args.positional[0]) if args.positional else None
    ordered = args.get(3, "enforce_sorted")
    lengths = args.get(1, "lengths")
    effects: tuple[Effect, ...] = ()
    if source is not None and on_device(source) and ordered is not None and ordered.const is False:
        effects = _told(forms.PACK_PADDED, source, "the order of the lengths is copied to the device")
    elif lengths is not None and device_within(lengths):
        effects = _told(forms.PACK_PADDED, lengths, "the lengths are wanted on the host", POSSIBLE)
    return Outcome(derived(source) if source is not None else Value(kinds=UNKNOWN), effects)


def unpad(args: Args) -> Outcome:
    """`unpad_sequence(padded, lengths)`: each length cuts a row, as a slice bound."""
    lengths = args.get(1, "lengths")
    source = tensor_within(args.positional[0]) if args.positional else None
    result = sequence_of(derived(source)) if source is not None else sequence_of(Value())
    if lengths is None or not on_device(lengths):
        return Outcome(result)
    return Outcome(result, _told(forms.SLICE_BOUND, lengths, "each length is read as a slice bound", times=0))


DYNAMIC = {
    "nonzero": nonzero,
    "argwhere": argwhere,
    "where": where,
    "masked_select": masked_select,
    "unique": unique,
    "unique_consecutive": unique_consecutive,
    "bincount": bincount,
    "histc": histc,
    "repeat_interleave": repeat_interleave,
    "one_hot": one_hot,
    "isin": isin,
    "mode": mode,
    "searchsorted": searchsorted,
    "to_sparse": to_sparse,
    "to_sparse_coo": to_sparse,
    "to_sparse_csr": to_sparse,
    "to_sparse_csc": to_sparse,
    "to_sparse_bsr": to_sparse,
    "coalesce": coalesce,
    "combinations": combinations,
}
