"""Which operator makes the host read the device, what to call it, and what to do instead.

The catalogue seen from a trace: keyed by the chain of cpu_op slices round a read. A CPU run of torch 2.13 shows the
same chains as a GPU, with the exceptions that are named here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from dsv4prof.sync import catalogue

SCALAR_READ = "aten::_local_scalar_dense"
UPLOAD = "aten::lift_fresh"
Certainty = Literal["certain", "likely", "possible"]


class Reading(msgspec.Struct, frozen=True):
    """How a read is reported, and the form of the catalogue behind it.

    `certainty` is for CPU runs, where a chain can look the same with and without a read.
    """

    code: str
    what: str
    fix: str
    certainty: Certainty = "certain"
    form: str = ""


def _as(form: str, what: str = "", certainty: Certainty = "certain") -> Reading:
    """A form of the catalogue as a reading. `what` stands for several forms that look alike in a trace."""
    known = catalogue.form(form)
    assert known.fix is not None
    return Reading(known.code, what or known.what, known.fix.text, certainty, form)


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

# The outermost of these in a chain names the read: the form of the catalogue that it is reported as.
_FORMS: dict[str, str] = {
    "aten::repeat_interleave": "repeat-interleave-tensor",
    "aten::index": "mask-index",
    "aten::index_put_": "mask-assign",
    "aten::_index_put_impl_": "mask-assign",
    "aten::where": "where-condition-only",
    "aten::argwhere": "argwhere",
    "aten::nonzero": "nonzero",
    "aten::nonzero_numpy": "nonzero-as-tuple",
    "aten::masked_select": "masked-select",
    "aten::_unique": "unique",
    "aten::_unique2": "unique",
    "aten::unique_dim": "unique-dim",
    "aten::unique_consecutive": "unique-consecutive",
    "aten::unique_dim_consecutive": "unique-dim",
    "aten::bincount": "bincount",
    "aten::one_hot": "one-hot-auto",
    "aten::_coalesce": "coalesce",
    "aten::is_nonzero": "truth-condition",
    "aten::equal": "torch-equal",
    "aten::allclose": "allclose",
    "aten::masked_fill": "masked-fill-tensor",
    "aten::masked_fill_": "masked-fill-tensor",
    "aten::index_fill": "index-fill-tensor",
    "aten::index_fill_": "index-fill-tensor",
    "aten::normal": "normal-tensor-std",
    "aten::histc": "histc-auto-range",
    "aten::_linalg_check_errors": "linalg-check",
    "aten::arange": "arange-bound",
    "aten::full": "factory-size",
    "aten::narrow": "narrow-bound",
    "aten::item": "item",
    "aten::_local_scalar_dense": "item",
}
# What a trace cannot tell apart.
_WORDS = {
    "aten::is_nonzero": "truth of a tensor",
    "aten::full": "full with a device value",
    "aten::item": "scalar read by .item(), int(), float() or as an index",
    "aten::_local_scalar_dense": "scalar read",
}
# On a CPU this operator shows with and without a read.
_UNSURE = frozenset({"aten::one_hot"})

# On a CPU these show a read that a GPU does not have: the value is a host scalar, or the check stays on the device.
_NOT_ON_GPU = frozenset({"aten::_assert_async", "aten::linalg_lu_solve", "aten::embedding_renorm_"})

MASK_ASSIGNMENT = _as("mask-assign", certainty="likely")
LIST_UPLOAD = _as("tensor-from-host", "upload from a Python list, if it is meant for the device", "possible")
ELEMENT_UPLOAD = _as("assign-element-number", certainty="likely")

_COPY_OPS = frozenset({"aten::copy_", "aten::_to_copy", "aten::to", "aten::clone", "aten::contiguous"})
TO_HOST = _as("cpu-method", "blocking copy to the host")
TO_DEVICE = _as("to-device", "blocking upload from the host")
ALLOCATION = _as("allocator-growth", "allocation call that stalls")
SYNCHRONIZE = {
    "stream": _as("stream-synchronize"),
    "device": _as("cuda-synchronize"),
    "event": _as("event-synchronize"),
}


def reading_of(chain: Sequence[str]) -> Reading | None:
    """How to report a read with this chain of operators, outermost first; None when no operator of it is known.

    A plain read inside an operator that is not listed keeps the operator in its name.
    """
    for op in chain:
        form = _FORMS.get(op)
        if form is not None:
            reading = _as(form, _WORDS.get(op, ""), "possible" if op in _UNSURE else "certain")
            inside = chain[0] if op != chain[0] and op in ("aten::item", SCALAR_READ) else None
            return msgspec.structs.replace(reading, what=f"{reading.what} inside {inside}") if inside else reading
    return None


def only_on_cpu(chain: Sequence[str]) -> bool:
    """Whether a scalar read with this chain exists on a CPU alone."""
    return any(op in _NOT_ON_GPU for op in chain)


def is_copy(chain: Sequence[str]) -> bool:
    """Whether the operators are those of a copy, and nothing else."""
    return bool(chain) and all(op in _COPY_OPS for op in chain)
