"""Which form of the catalogue a wait is: an item() inside `x[:n]` is a slice bound, inside `if t` a truth.

Dispatch shows the operator that waits, not the call that a program wrote. Whoever notes the outermost Python function
of torch (a TorchFunctionMode does) hands its name over here.
"""

from __future__ import annotations

import msgspec

from dsv4prof.sync.runtime.calls import Reason
from dsv4prof.sync.runtime.reasons.named import named

# The outermost function -> the form, for values that are read on the host.
_READS = {
    "__bool__": "truth-conversion",
    "is_nonzero": "is-nonzero",
    "__index__": "operator-index",
    "__int__": "scalar-conversion",
    "__float__": "scalar-conversion",
    "__complex__": "scalar-conversion",
    "__contains__": "truth-contains",
    "__format__": "format-fstring",
    "__repr__": "format-str",
    "__str__": "format-str",
    "one_hot": "one-hot-auto",
    "prod": "prod-backward",
    "backward": "prod-backward",
    "repeat_interleave": "repeat-interleave-output-size-tensor",
    "narrow": "narrow-bound",
    "arange": "arange-bound",
    "range": "arange-bound",
    "linspace": "linspace-bound",
    "logspace": "linspace-bound",
    "tensor": "tensor-of-tensors",
    "as_tensor": "tensor-of-tensors",
    "asarray": "tensor-of-tensors",
    "full": "fill-value-parameter",
    "full_like": "fill-value-parameter",
    "new_full": "fill-value-parameter",
    "fill_diagonal_": "fill-value-parameter",
}
_SIZES = dict.fromkeys(
    [
        "zeros",
        "ones",
        "empty",
        "rand",
        "randn",
        "randint",
        "randperm",
        "eye",
        "new_zeros",
        "new_ones",
        "new_empty",
        "empty_strided",
        "tril_indices",
    ],
    "factory-size",
)
_VIEWS = dict.fromkeys(
    [
        "view",
        "reshape",
        "expand",
        "repeat",
        "tile",
        "unflatten",
        "resize_",
        "as_strided",
        "broadcast_to",
        "flatten",
        "squeeze",
        "unsqueeze",
    ],
    "view-size",
)
_COUNTS = dict.fromkeys(
    [
        "topk",
        "kthvalue",
        "select",
        "roll",
        "split",
        "chunk",
        "tensor_split",
        "unfold",
        "pad",
        "cumsum",
        "triu",
        "tril",
        "softmax",
        "dropout",
    ],
    "count-parameter",
)
_SCALARS = dict.fromkeys(
    [
        "add",
        "sub",
        "add_",
        "sub_",
        "addmm",
        "addmv",
        "addr",
        "baddbmm",
        "addbmm",
        "addcmul",
        "addcdiv",
        "lerp",
        "clamp",
        "rsub",
    ],
    "scalar-parameter",
)
_BY_READER = {**_SIZES, **_VIEWS, **_COUNTS, **_SCALARS, **_READS}
_COPIES_DOWN = {
    "cpu": "cpu-method",
    "type": "type-cpu",
    "type_as": "to-cpu-like",
    "as_tensor": "as-tensor-cpu",
    "asarray": "as-tensor-cpu",
    "tolist": "tolist",
    "__setitem__": "assign-to-host",
}
_COPIES_UP = {
    "cuda": "cuda-method",
    "tensor": "tensor-from-host",
    "as_tensor": "as-tensor-from-host",
    "asarray": "as-tensor-from-host",
    "new_tensor": "new-tensor",
    "__getitem__": "index-by-list",
    "__setitem__": "assign-from-host",
}


def refined(reason: Reason, function: str, *, device_index: bool = False, whole_element: bool = False) -> Reason:
    """The same reason under the form that a program's author would recognise.

    `function` is the bare name of the outermost torch function ("__getitem__", "arange"), "" if unknown.
    `device_index`: an index given to it is a tensor on a device; `whole_element`: a number is assigned to an element.
    """
    form = _form(reason, function, device_index=device_index, whole_element=whole_element)
    if not form or form == reason.form:
        return reason
    other = named(form, reason.text, kind=reason.kind)
    return msgspec.structs.replace(reason, form=form, code=other.code)


def _form(reason: Reason, function: str, *, device_index: bool, whole_element: bool) -> str:
    if reason.form == "item":
        if function == "__getitem__":
            return "index-0dim" if device_index else "slice-bound"
        if function == "__setitem__":
            return "assign-index-0dim" if device_index else "assign-slice-bound"
        return _BY_READER.get(function, "")
    if reason.form in ("to-cpu", "copy-to-host"):
        return _COPIES_DOWN.get(function, "")
    if reason.form in ("to-device", "copy-from-host"):
        if function == "__setitem__":
            if whole_element:
                return "assign-element-number"
            return "assign-by-list" if reason.form == "to-device" else "assign-from-host"
        return _COPIES_UP.get(function, "")
    if reason.form == "nonzero":
        return {"where": "where-condition-only", "argwhere": "argwhere", "combinations": "combinations"}.get(
            function, ""
        )
    return ""
