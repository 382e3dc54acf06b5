"""Dimensions and element types of the results of operators that never wait: reductions, views, casts, pieces."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from dsv4prof.sync.code.effects import Args, Outcome
from dsv4prof.sync.code.semantics.listed import listed
from dsv4prof.sync.code.semantics.sizes import dimensions
from dsv4prof.sync.code.semantics.tell import deciding, derived, every
from dsv4prof.sync.code.values import (
    HOST,
    HOST_NUMBER,
    NONE,
    SEQUENCE,
    TENSOR,
    Value,
    sequence,
    sequence_of,
)

Handler = Callable[[Value, Args], Outcome | None]


def without(ndim: int | None, dim: Value | None) -> int | None:
    """The dimensions left after a reduction over `dim`."""
    if ndim is None:
        return None
    if dim is not None and dim.kinds & SEQUENCE:
        return max(ndim - len(dim.items), 0) if dim.items is not None else None
    return max(ndim - 1, 0)


def elementwise(receiver: Value, args: Args) -> Outcome:
    """Of the shape that its operands broadcast to, in the memory that they share."""
    return Outcome(combined(receiver, every(args)))


def combined(receiver: Value, others: tuple[Value, ...], dtype: str | None = None) -> Value:
    """The result of an operator without dimensions of its own."""
    source = receiver
    ndim, numel, least = receiver.ndim, receiver.numel, receiver.least
    kind = receiver.dtype
    for other in others:
        if other.kinds == HOST or other.kinds == NONE:
            if other.dtype == "float" or type(other.const) is float:
                kind = "float"
            continue
        if not other.kinds & (TENSOR | SEQUENCE):
            numel = None
            continue
        source = deciding((source, other)) or source
        if other.kinds & TENSOR:
            ndim = None if ndim is None or other.ndim is None else max(ndim, other.ndim)
            least = max(least, other.least)
            numel = numel if numel == other.numel else None
            if kind in ("bool", "int") and other.dtype != kind:
                kind = other.dtype
    return derived(source, dtype=kind if dtype is None else dtype, ndim=ndim, numel=numel, least=least)


def _compared(receiver: Value, args: Args) -> Outcome:
    return Outcome(combined(receiver, every(args), "bool"))


_COMPARISONS = listed(
    "eq ne lt le gt ge greater greater_equal less less_equal not_equal isnan isinf isfinite isposinf isneginf isreal "
    "isclose logical_and logical_or logical_xor logical_not signbit"
)


def _cast(dtype: str) -> Handler:
    def cast(receiver: Value, args: Args) -> Outcome:
        return Outcome(replace(receiver, dtype=dtype, kinds=TENSOR))

    return cast


_CASTS = {
    **dict.fromkeys(listed("int long short char"), "int"),
    **dict.fromkeys(listed("float half double bfloat16"), "float"),
    "bool": "bool",
    "byte": "uint8",
}


def _same(receiver: Value, args: Args) -> Outcome:
    """clone, contiguous, detach: the same numbers in the same shape."""
    return Outcome(
        replace(receiver, kinds=TENSOR, strided=False) if receiver.strided else replace(receiver, kinds=TENSOR)
    )


_SAME = listed(
    "clone contiguous detach detach_ requires_grad_ alias share_memory_ positive conj resolve_conj resolve_neg "
    "to_dense dequantize flip fliplr flipud rename refine_names"
)


def _reshaped(receiver: Value, args: Args) -> Outcome:
    sizes = args.positional
    ndim = dimensions(sizes) if sizes else None
    if ndim == 1 and sizes[0].kinds & (SEQUENCE | TENSOR) and sizes[0].items is None:
        ndim = None
    if len(sizes) == 1 and sizes[0].kinds not in (HOST, SEQUENCE):
        # x.view(dtype) and x.view(shape) of an unknown shape.
        ndim = None
    return Outcome(replace(receiver, ndim=ndim, kinds=TENSOR, least=0))


def _expanded(receiver: Value, args: Args) -> Outcome:
    sizes = args.positional
    return Outcome(derived(receiver, ndim=dimensions(sizes) if sizes else None))


def _flattened(receiver: Value, args: Args) -> Outcome:
    whole = not every(args)
    return Outcome(replace(receiver, ndim=1 if whole else None, kinds=TENSOR, least=0))


def _deeper(receiver: Value, args: Args) -> Outcome:
    ndim = receiver.ndim + 1 if receiver.ndim is not None else None
    return Outcome(replace(receiver, ndim=ndim, kinds=TENSOR, least=max(receiver.least, 1) + 1))


def _squeezed(receiver: Value, args: Args) -> Outcome:
    """Without a dimension all of size 1 go; with one, it goes if it is of size 1."""
    ndim = receiver.ndim
    if ndim is not None and ndim > 0:
        ndim = ndim - 1 if every(args) else 0 if receiver.numel == 1 else None
    return Outcome(replace(receiver, ndim=ndim, kinds=TENSOR, least=max(receiver.least - 1, 0) if every(args) else 0))


def _turned(receiver: Value, args: Args) -> Outcome:
    """transpose, permute: a view without gaps."""
    return Outcome(replace(receiver, kinds=TENSOR))


def _shallower(receiver: Value, args: Args) -> Outcome:
    """select(dim, index)."""
    return Outcome(derived(receiver, ndim=without(receiver.ndim, None), numel=1 if receiver.ndim == 1 else None))


def _as_deep(receiver: Value, args: Args) -> Outcome:
    return Outcome(derived(receiver, ndim=receiver.ndim, least=receiver.least))


_AS_DEEP = listed(
    "cumsum logcumsumexp gather index_select narrow narrow_copy roll scatter scatter_add scatter_reduce "
    "index_add index_copy masked_scatter softmax log_softmax triu tril renorm diff unfold_copy index_put repeat_as "
    "dropout layer_norm rms_norm normalize pad interpolate relu gelu silu sigmoid tanh exp log sqrt rsqrt abs neg "
    "floor ceil round trunc sign reciprocal square sin cos erf nan_to_num argsort"
)


def _indices(receiver: Value, args: Args) -> Outcome:
    return Outcome(derived(receiver, dtype="int", ndim=receiver.ndim))


def _taken(receiver: Value, args: Args) -> Outcome:
    """take(index): of the shape of the index."""
    index = args.get(0, "index")
    return Outcome(derived(receiver, ndim=index.ndim if index is not None else None))


def _pieces(receiver: Value, args: Args) -> Outcome:
    return Outcome(sequence_of(derived(receiver, ndim=receiver.ndim), "tuple"))


def _unbound(receiver: Value, args: Args) -> Outcome:
    return Outcome(sequence_of(derived(receiver, ndim=without(receiver.ndim, None)), "tuple"))


def _host(receiver: Value, args: Args) -> Outcome:
    return Outcome(HOST_NUMBER)


_HOST_FACTS = listed(
    "dim numel nelement ndimension data_ptr element_size is_contiguous get_device storage_offset is_floating_point "
    "is_complex is_signed is_pinned is_shared is_set_to is_same_size is_inference is_conj is_neg has_names sym_size "
    "sym_numel __len__ __hash__ result_type is_tensor itemsize nbytes is_coalesced sparse_dim dense_dim const_data_ptr"
)


def _size(receiver: Value, args: Args) -> Outcome:
    """size(), stride(): numbers, or a tuple of them."""
    if every(args):
        return Outcome(HOST_NUMBER)
    if receiver.ndim is not None:
        return Outcome(sequence((HOST_NUMBER,) * receiver.ndim))
    return Outcome(sequence_of(HOST_NUMBER, "tuple"))


def joined_tensors(tensors: Value, deeper: bool) -> Value:
    """cat and stack: in the memory of what they join."""
    source = deciding((tensors,))
    if source is None:
        return Value()
    first = tensors.items[0] if tensors.items else tensors.element
    ndim = source.ndim if first is None or not first.kinds & TENSOR else first.ndim
    if deeper and ndim is not None:
        ndim += 1
    dtype = source.dtype if first is None else first.dtype
    return derived(source, dtype=dtype, ndim=ndim)


def _stacked(receiver: Value, args: Args) -> Outcome:
    return Outcome(joined_tensors(receiver, True))


def _catenated(receiver: Value, args: Args) -> Outcome:
    return Outcome(joined_tensors(receiver, False))


SHAPES: dict[str, Handler] = {
    **dict.fromkeys(listed("maximum minimum fmax fmin"), elementwise),
    **dict.fromkeys(_COMPARISONS, _compared),
    **{name: _cast(dtype) for name, dtype in _CASTS.items()},
    **dict.fromkeys(_SAME, _same),
    **dict.fromkeys(listed("view reshape unflatten view_as reshape_as"), _reshaped),
    **dict.fromkeys(listed("expand repeat tile broadcast_to expand_as"), _expanded),
    **dict.fromkeys(listed("flatten ravel"), _flattened),
    "unsqueeze": _deeper,
    "squeeze": _squeezed,
    **dict.fromkeys(listed("t transpose permute movedim moveaxis swapaxes swapdims mT adjoint"), _turned),
    "select": _shallower,
    **dict.fromkeys(_AS_DEEP, _as_deep),
    **dict.fromkeys(listed("argsort bucketize"), _indices),
    "take": _taken,
    **dict.fromkeys(listed("split chunk tensor_split split_with_sizes hsplit vsplit dsplit unsafe_chunk"), _pieces),
    "unbind": _unbound,
    **dict.fromkeys(_HOST_FACTS, _host),
    **dict.fromkeys(listed("size stride"), _size),
    "stack": _stacked,
    **dict.fromkeys(listed("cat concat concatenate"), _catenated),
    **dict.fromkeys(listed("hstack vstack dstack row_stack column_stack block_diag cartesian_prod"), _catenated),
    **dict.fromkeys(listed("meshgrid broadcast_tensors atleast_1d atleast_2d align_tensors"), _pieces),
}
