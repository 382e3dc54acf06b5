"""Device values where torch wants a Python number: sizes, counts, bounds, and scalar parameters.

Torch's argument parser asks a tensor that is given for an int or a Scalar for its number, wherever the operator itself
would have run.
"""

from __future__ import annotations

from collections.abc import Iterable

from dsv4prof.sync.code.effects import Args, Effect
from dsv4prof.sync.code.semantics import forms
from dsv4prof.sync.code.semantics.listed import listed
from dsv4prof.sync.code.semantics.tell import device_within, effect
from dsv4prof.sync.code.values import HOST, NOTHING, POSSIBLE, SEQUENCE, UNKNOWN, Value


def asked(form: str, values: Iterable[Value | None], reason: str) -> tuple[Effect, ...]:
    """One effect for each of the values that is, or holds, a device tensor."""
    effects: tuple[Effect, ...] = ()
    for value in values:
        if value is None or value.kinds == HOST:
            continue
        found = device_within(value)
        if found is not None and not (found.kinds & UNKNOWN and found.strength == POSSIBLE):
            effects = (*effects, effect(form, found, reason))
    return effects


# (position after the tensor, keyword) of parameters that take a Python number; position -1 is by keyword alone.
_COUNTS = {
    "topk": ((0, "k"),),
    **dict.fromkeys(
        listed("cumsum cumprod logcumsumexp sum mean prod argmax argmin argsort squeeze flip unbind any all softmax"),
        ((0, "dim"),),
    ),
    "kthvalue": ((0, "k"),),
    "select": ((1, "index"),),
    "roll": ((0, "shifts"),),
    "split": ((0, "split_size"), (0, "split_size_or_sections")),
    "split_with_sizes": ((0, "split_sizes"),),
    "chunk": ((0, "chunks"),),
    "tensor_split": ((0, "indices_or_sections"),),
    "hsplit": ((0, "sections"),),
    "unfold": ((1, "size"), (2, "step")),
    "diag": ((0, "diagonal"),),
    "diagonal": ((0, "offset"),),
    "diag_embed": ((0, "offset"),),
    "triu": ((0, "diagonal"),),
    "tril": ((0, "diagonal"),),
    "triu_": ((0, "diagonal"),),
    "tril_": ((0, "diagonal"),),
    "multinomial": ((0, "num_samples"),),
    "rot90": ((0, "k"),),
    "matrix_power": ((0, "n"),),
    "one_hot": ((0, "num_classes"),),
    "pad": ((0, "pad"),),
    "interpolate": ((0, "size"), (1, "scale_factor")),
    "bincount": ((1, "minlength"),),
    "nonzero_static": ((-1, "size"),),
    "index_select": ((0, "dim"),),
    "unsqueeze": ((0, "dim"),),
    "vander": ((0, "N"),),
    "combinations": ((0, "r"),),
    "pixel_shuffle": ((0, "upscale_factor"),),
    "glu": ((0, "dim"),),
    "tril_indices": ((0, "row"), (1, "col"), (2, "offset")),
    "triu_indices": ((0, "row"), (1, "col"), (2, "offset")),
}
_SCALARS = {
    "add": ((-1, "alpha"),),
    "sub": ((-1, "alpha"),),
    "subtract": ((-1, "alpha"),),
    "rsub": ((-1, "alpha"),),
    "index_add": ((-1, "alpha"),),
    "addcmul": ((-1, "value"),),
    "addcdiv": ((-1, "value"),),
    "addmm": ((-1, "beta"), (-1, "alpha")),
    "addmv": ((-1, "beta"), (-1, "alpha")),
    "addr": ((-1, "beta"), (-1, "alpha")),
    "addbmm": ((-1, "beta"), (-1, "alpha")),
    "baddbmm": ((-1, "beta"), (-1, "alpha")),
    "renorm": ((0, "p"), (2, "maxnorm")),
    "uniform_": ((0, "from"), (1, "to")),
    "normal_": ((0, "mean"), (1, "std")),
    "random_": ((0, "from"), (1, "to")),
    "exponential_": ((0, "lambd"),),
    "geometric_": ((0, "p"),),
    "cauchy_": ((0, "median"), (1, "sigma")),
    "log_normal_": ((0, "mean"), (1, "std")),
    "fill_diagonal_": ((0, "fill_value"),),
    "nan_to_num": ((0, "nan"), (1, "posinf"), (2, "neginf")),
    "threshold": ((0, "threshold"), (1, "value")),
    "hardtanh": ((0, "min_val"), (1, "max_val")),
    "elu": ((0, "alpha"),),
    "celu": ((0, "alpha"),),
    "leaky_relu": ((0, "negative_slope"),),
    "hardshrink": ((0, "lambd"),),
    "softshrink": ((0, "lambd"),),
    "softplus": ((0, "beta"), (1, "threshold")),
    "dropout": ((0, "p"),),
    "logit": ((0, "eps"),),
    "cdist": ((1, "p"),),
    "pdist": ((0, "p"),),
    "norm": ((0, "p"),),
    "vector_norm": ((0, "ord"),),
    "layer_norm": ((0, "normalized_shape"), (3, "eps")),
    "rms_norm": ((0, "normalized_shape"), (2, "eps")),
    "normalize": ((0, "p"), (2, "eps")),
    "isclose": ((1, "rtol"), (2, "atol")),
    "polygamma": ((0, "n"),),
    "mvlgamma": ((0, "p"),),
    "cross_entropy": ((-1, "label_smoothing"),),
    "scaled_dot_product_attention": ((3, "dropout_p"), (-1, "scale")),
    "log_softmax": ((0, "dim"),),
    "histc": ((0, "bins"), (1, "min"), (2, "max")),
}
_FILLS = {"full_like": ((0, "fill_value"),), "new_full": ((1, "fill_value"),)}
_NARROWS = {"narrow": ((1, "start"), (2, "length")), "narrow_copy": ((1, "start"), (2, "length"))}
# Every positional argument is a size.
_VIEWS = listed("view reshape expand repeat tile unflatten resize_ as_strided view_copy broadcast_to expand_copy")
_NEW = listed("new_zeros new_ones new_empty new_full new_empty_strided")


def number_effects(name: str, args: Args) -> tuple[Effect, ...]:
    """The reads of an operator's numeric parameters; `args` without the tensor that it works on."""
    if name in _VIEWS:
        return asked(forms.VIEW_SIZE, (*args.positional, args.keywords.get("size"), args.keywords.get("shape")), _SIZE)
    if name in _NEW:
        effects = asked(
            forms.FACTORY_SIZE, (args.get(0, "size"), *args.positional[2 if name == "new_full" else 1 :]), _SIZE
        )
        return effects + _by_table(forms.FILL_VALUE_PARAMETER, _FILLS.get(name), args, _FILL)
    base = name[:-1] if name.endswith("_") and name not in _SCALARS else name
    if base in _SCALARS:
        return _by_table(forms.SCALAR_PARAMETER, _SCALARS[base], args, _SCALAR)
    if base in _COUNTS:
        return _by_table(forms.COUNT_PARAMETER, _COUNTS[base], args, _COUNT)
    if base in _NARROWS:
        return _by_table(forms.NARROW_BOUND, _NARROWS[base], args, _BOUND)
    return _by_table(forms.FILL_VALUE_PARAMETER, _FILLS.get(base), args, _FILL)


_SIZE = "a device tensor is given as a size"
_COUNT = "a device tensor is given as a count"
_SCALAR = "a device tensor is given for a scalar parameter"
_FILL = "a device tensor is given as the fill value"
_BOUND = "a device tensor is given as a bound"


def _by_table(form: str, wanted: tuple[tuple[int, str], ...] | None, args: Args, reason: str) -> tuple[Effect, ...]:
    if not wanted:
        return ()
    return asked(form, [args.get(place, name) for place, name in wanted], reason)


def dimensions(values: tuple[Value, ...]) -> int | None:
    """How many dimensions sizes speak of, as separate numbers or as one list of them."""
    if len(values) == 1 and values[0].kinds & ~HOST:
        first = values[0]
        if first.kinds == SEQUENCE and first.items is not None:
            return len(first.items)
        return None
    return len(values)


def elements(values: tuple[Value, ...]) -> int | None:
    """How many elements a tensor of these sizes has, where all of them are known or one is 0."""
    sizes = values[0].items if len(values) == 1 and values[0].kinds == SEQUENCE else values
    if sizes is None:
        return None
    product: int | None = 1
    for size in sizes:
        const = size.const
        if const is NOTHING or type(const) is not int or const < 0:
            product = None
        elif const == 0:
            return 0
        elif product is not None:
            product *= const
    return product
