"""Which operator makes the host read the device, what to call it, and what to do instead.

Keyed by what a trace shows: the chain of cpu_op slices round a read. Sources: ATen 2.6 to 2.13 and measurements on a
GPU; a CPU run of torch 2.13 shows the same chains, with the exceptions that are named here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

SCALAR_READ = "aten::_local_scalar_dense"
UPLOAD = "aten::lift_fresh"
Certainty = Literal["certain", "likely", "possible"]


class Reading(msgspec.Struct, frozen=True):
    """How a read is reported. `certainty` is for CPU runs, where a chain can look the same with and without a read."""

    code: str
    what: str
    fix: str
    certainty: Certainty = "certain"


_STATIC = "use a form with a static shape (torch.where, a mask, nonzero_static)"
_MIRROR = "keep the value on the device, or a mirror of it on the host"
_TRUTH = "torch.where or torch._assert_async instead of Python's truth"
_SIZE = "use a number known on the host"
_LINALG = "the _ex form, and check its info later"

# Operators that read back by themselves: how often, whatever lies below them.
OWN_READS: dict[str, int] = {
    "aten::nonzero": 1,
    "aten::masked_select": 1,
    "aten::_unique": 1,
    "aten::_unique2": 1,
    "aten::unique_dim": 1,
    "aten::unique_consecutive": 1,
    "aten::unique_dim_consecutive": 1,
    "aten::bincount": 2,
    "aten::equal": 1,
    "aten::one_hot": 1,
    "aten::_linalg_check_errors": 1,
    "aten::_coalesce": 5,
}

# The outermost of these in a chain names the read.
_READINGS: dict[str, Reading] = {
    "aten::repeat_interleave": Reading(
        "DSV105",
        "repeat_interleave without output_size",
        "pass output_size, only if the exact total is known on the host: another value corrupts memory",
    ),
    "aten::index": Reading("DSV105", "boolean mask as index", _STATIC),
    "aten::index_put_": Reading("DSV105", "assignment through a boolean mask", "torch.where"),
    "aten::_index_put_impl_": Reading("DSV105", "assignment through a boolean mask", "torch.where"),
    "aten::where": Reading("DSV105", "where with a condition only", _STATIC),
    "aten::argwhere": Reading("DSV105", "argwhere", _STATIC),
    "aten::nonzero": Reading("DSV105", "nonzero", _STATIC),
    "aten::nonzero_numpy": Reading("DSV105", "nonzero(as_tuple=True)", _STATIC),
    "aten::masked_select": Reading("DSV105", "masked_select", _STATIC),
    "aten::_unique": Reading("DSV105", "unique", "a static form: sort and compare neighbours"),
    "aten::_unique2": Reading("DSV105", "unique", "a static form: sort and compare neighbours"),
    "aten::unique_dim": Reading("DSV105", "unique(dim=)", "a static form: sort and compare neighbours"),
    "aten::unique_consecutive": Reading("DSV105", "unique_consecutive", "a static form: compare neighbours"),
    "aten::unique_dim_consecutive": Reading("DSV105", "unique_consecutive(dim=)", "a static form: compare neighbours"),
    "aten::bincount": Reading("DSV105", "bincount, also with minlength", "zeros(n).scatter_add_"),
    "aten::one_hot": Reading("DSV105", "one_hot without num_classes", "pass num_classes", "possible"),
    "aten::_coalesce": Reading("DSV105", "coalesce of a sparse tensor", "coalesce once, outside the step"),
    "aten::is_nonzero": Reading("DSV107", "truth of a tensor", _TRUTH),
    "aten::equal": Reading("DSV107", "torch.equal", "compare on the device"),
    "aten::allclose": Reading("DSV107", "allclose", "compare on the device"),
    "aten::masked_fill": Reading("DSV101", "masked_fill with a tensor as value", "torch.where"),
    "aten::masked_fill_": Reading("DSV101", "masked_fill_ with a tensor as value", "torch.where"),
    "aten::index_fill": Reading("DSV101", "index_fill with a tensor as value", "torch.where"),
    "aten::index_fill_": Reading("DSV101", "index_fill_ with a tensor as value", "torch.where"),
    "aten::normal": Reading("DSV101", "normal with a tensor of deviations", "mean + std * randn_like"),
    "aten::histc": Reading("DSV101", "histc without min and max", "pass min and max"),
    "aten::_linalg_check_errors": Reading("DSV101", "error check of a linalg function", _LINALG),
    "aten::arange": Reading("DSV110", "arange up to a device value", _SIZE),
    "aten::full": Reading("DSV110", "full with a device value", _SIZE),
    "aten::narrow": Reading("DSV110", "narrow by a device value", _SIZE),
    "aten::item": Reading("DSV101", "scalar read by .item(), int(), float() or as an index", _MIRROR),
    "aten::_local_scalar_dense": Reading("DSV101", "scalar read", _MIRROR),
}

# On a CPU these show a read that a GPU does not have: the value is a host scalar, or the check stays on the device.
_NOT_ON_GPU = frozenset({"aten::_assert_async", "aten::linalg_lu_solve", "aten::embedding_renorm_"})

MASK_ASSIGNMENT = Reading("DSV105", "assignment through a boolean mask", "torch.where", "likely")
LIST_UPLOAD = Reading(
    "DSV108", "upload from a Python list, if it is meant for the device", "torch.full, or a cached tensor", "possible"
)
# Up to torch 2.13; later versions fill.
ELEMENT_UPLOAD = Reading(
    "DSV108", "a Python number assigned to an element", "x[i : i + 1] = number, or fill_", "likely"
)

_COPY_OPS = frozenset({"aten::copy_", "aten::_to_copy", "aten::to", "aten::clone", "aten::contiguous"})
TO_HOST = Reading("DSV103", "blocking copy to the host", "non_blocking=True into pinned memory; read after an event")
TO_DEVICE = Reading(
    "DSV108", "blocking upload from the host", "pinned memory with non_blocking=True, or a cached tensor"
)
ALLOCATION = Reading("DSV111", "allocation call that stalls", "allocate before the hot path")
SYNCHRONIZE = {
    "stream": Reading("DSV106", "wait for a stream", "wait_stream, or wait where the value is used"),
    "device": Reading("DSV106", "wait for the whole device", "an event, waited for where the value is used"),
    "event": Reading("DSV106", "wait for an event", "wait as late as possible, where the value is used"),
}


def reading_of(chain: Sequence[str]) -> Reading | None:
    """How to report a read with this chain of operators, outermost first; None when no operator of it is known.

    A plain read inside an operator that is not listed keeps the operator in its name.
    """
    for op in chain:
        reading = _READINGS.get(op)
        if reading is not None:
            inside = chain[0] if op != chain[0] and op in ("aten::item", SCALAR_READ) else None
            return msgspec.structs.replace(reading, what=f"{reading.what} inside {inside}") if inside else reading
    return None


def only_on_cpu(chain: Sequence[str]) -> bool:
    """Whether a scalar read with this chain exists on a CPU alone."""
    return any(op in _NOT_ON_GPU for op in chain)


def is_copy(chain: Sequence[str]) -> bool:
    """Whether the operators are those of a copy, and nothing else."""
    return bool(chain) and all(op in _COPY_OPS for op in chain)
