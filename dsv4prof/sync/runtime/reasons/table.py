"""Which rule judges which operator."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

from dsv4prof.sync.runtime.calls import OpCall, Reason
from dsv4prof.sync.runtime.reasons import copies, indexing, reads, versions

_Rule = Callable[[OpCall], tuple[Reason, ...]]

_COUNT = "the number of places found is read back, for it is the size of the result"
_BOUND = "a bound given as a tensor is read back"
_LINALG = "the solver's state is read back"

_RULES: dict[str, _Rule] = {
    "_local_scalar_dense": reads.scalar,
    "item": reads.scalar,
    "is_nonzero": reads.scalar,
    "copy_": copies.copy_,
    "_foreach_copy_": copies.foreach_copy_,
    "_foreach_copy": copies.foreach_copy_,
    "_copy_from": copies.copy_from,
    "_copy_from_and_resize": copies.copy_from,
    "_to_copy": copies.to_copy,
    "_pin_memory": copies.pinned,
    "masked_fill": indexing.masked_fill,
    "masked_fill_": indexing.masked_fill,
    "index_fill": indexing.index_fill,
    "index_fill_": indexing.index_fill,
    "where": indexing.where,
    "nonzero": reads.reading("nonzero", _COUNT),
    "nonzero_numpy": reads.reading("nonzero-as-tuple", _COUNT),
    "argwhere": reads.reading("argwhere", _COUNT),
    "masked_select": reads.reading("masked-select", _COUNT),
    "_to_sparse": reads.reading("to-sparse", _COUNT),
    "_to_sparse_csr": reads.reading("to-sparse", _COUNT),
    "_to_sparse_csc": reads.reading("to-sparse", _COUNT),
    "_to_sparse_bsr": reads.reading("to-sparse", _COUNT),
    "_to_sparse_bsc": reads.reading("to-sparse", _COUNT),
    "_coalesce": reads.coalesce,
    "_unique": reads.unique,
    "_unique2": reads.unique,
    "unique_dim": reads.unique,
    "unique_consecutive": reads.unique,
    "unique_dim_consecutive": reads.unique,
    "bincount": reads.bincount,
    "histc": reads.histc,
    "repeat_interleave": reads.repeat_interleave,
    "isin": reads.isin,
    "mode": reads.mode,
    "searchsorted": reads.searchsorted,
    "equal": reads.equal,
    "allclose": reads.allclose,
    "normal": reads.normal,
    "segment_reduce": reads.segment_reduce,
    "_ctc_loss": reads.ctc_loss,
    "_linalg_check_errors": reads.reading("linalg-check", _LINALG),
    "_linalg_eigh": reads.reading("linalg-check", _LINALG),
    "cholesky": reads.reading("linalg-check", _LINALG),
    "linspace": reads.reading("linspace-bound", _BOUND, times=1),
    "logspace": reads.reading("linspace-bound", _BOUND, times=1),
    "linalg_pinv": reads.reading("linalg-convergence", _LINALG),
    "_linalg_svd": reads.reading("linalg-convergence", _LINALG),
    "linalg_svd": reads.reading("linalg-convergence", _LINALG),
    "linalg_lstsq": reads.reading("linalg-convergence", _LINALG, times=1),
    "linalg_eig": reads.reading("linalg-convergence", _LINALG, times=1),
    "linalg_eigvals": reads.reading("linalg-convergence", _LINALG, times=1),
    "_linalg_eigvals": reads.reading("linalg-convergence", _LINALG, times=1),
    "linalg_matrix_exp": reads.reading("matrix-exp", "norms are read back to choose an approximation"),
}

_VERSIONED: dict[str, Callable[[OpCall, tuple[int, ...]], tuple[Reason, ...]]] = {
    "index": indexing.index,
    "_unsafe_index": indexing.index,
    "index_put": indexing.index_put,
    "index_put_": indexing.index_put,
    "_index_put_impl_": indexing.index_put,
    "_unsafe_index_put": indexing.index_put,
    "multinomial": reads.multinomial,
}
# Only these overloads take tensors where the others take numbers.
_OVERLOADS: dict[str, frozenset[str]] = {
    "repeat_interleave": frozenset({"Tensor", "Tensor_out"}),
    "normal": frozenset({"Tensor_Tensor", "float_Tensor", "Tensor_Tensor_out", "float_Tensor_out"}),
    "isin": frozenset({"Tensor_Tensor", "Scalar_Tensor", "Tensor_Tensor_out", "Scalar_Tensor_out"}),
    "masked_fill": frozenset({"Tensor", "Tensor_out"}),
    "masked_fill_": frozenset({"Tensor"}),
    "index_fill": frozenset({"int_Tensor", "int_Tensor_out"}),
    "index_fill_": frozenset({"int_Tensor"}),
}


def reasons_of(call: OpCall, *, torch_version: str | None = None) -> tuple[Reason, ...]:
    """Why this operator makes the host wait, may do so, or breaks a promise; empty where it does nothing of that.

    `torch_version` (default: the installed torch) decides where versions differ. Costs no sync and reads no value.
    """
    name = call.name.removeprefix("aten::")
    overloads = _OVERLOADS.get(name)
    if overloads is not None and call.overload not in overloads:
        return ()
    rule = _rule(name, torch_version)
    return rule(call) if rule is not None else ()


def judged_operators() -> frozenset[str]:
    """Names of the operators that have a rule, without `aten::`."""
    return frozenset(_RULES) | frozenset(_VERSIONED)


@cache
def _rule(name: str, torch_version: str | None) -> _Rule | None:
    versioned = _VERSIONED.get(name)
    if versioned is None:
        return _RULES.get(name)
    version = versions.running() if torch_version is None else versions.parsed(torch_version)
    return partial(_with_version, versioned, version)


def _with_version(
    rule: Callable[[OpCall, tuple[int, ...]], tuple[Reason, ...]], version: tuple[int, ...], call: OpCall
) -> tuple[Reason, ...]:
    return rule(call, version)
