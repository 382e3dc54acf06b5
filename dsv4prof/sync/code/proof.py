"""Names that are surely tensors because of what is done with them, though nobody says where they come from."""

from __future__ import annotations

import ast

from dsv4prof.sync.code.gather import dotted

# What tensors have and lists, numbers and most objects have not.
_OF_TENSORS = frozenset(
    [
        "device",
        "item",
        "tolist",
        "cumsum",
        "view",
        "unsqueeze",
        "squeeze",
        "to",
        "cpu",
        "cuda",
        "contiguous",
        "is_cuda",
        "numel",
        "data_ptr",
        "new_zeros",
        "new_empty",
        "new_full",
        "new_tensor",
        "new_ones",
        "scatter",
        "scatter_",
        "scatter_add_",
        "gather",
        "index_select",
        "index_copy_",
        "index_add_",
        "masked_fill",
        "masked_fill_",
        "masked_select",
        "copy_",
        "fill_",
        "zero_",
        "expand",
        "expand_as",
        "repeat_interleave",
        "flatten",
        "reshape",
        "transpose",
        "permute",
        "long",
        "int",
        "float",
        "half",
        "bfloat16",
        "bool",
        "argmax",
        "topk",
        "softmax",
        "sigmoid",
        "amax",
        "amin",
        "nonzero",
        "unique",
        "ndim",
        "dim",
        "stride",
        "detach",
        "clone",
        "chunk",
        "clamp",
        "clamp_",
        "add_",
        "sub_",
        "mul_",
        "div_",
        "record_stream",
        "requires_grad",
        "element_size",
        "narrow",
    ]
)
_FUNCTIONS = ("torch.", "F.")
# What is given to these is a list, a number or an array more often than a tensor.
_MAKES = frozenset(
    f"torch.{name}"
    for name in ("tensor", "as_tensor", "asarray", "from_numpy", "full", "zeros", "ones", "empty", "arange", "device")
)


def proven(node: ast.AST) -> frozenset[str]:
    """Names and dotted paths in a function that are used as only tensors are."""
    found: set[str] = set()
    for part in ast.walk(node):
        if isinstance(part, ast.Attribute) and part.attr in _OF_TENSORS:
            _bases(part.value, found)
        elif isinstance(part, ast.Call) and (name := dotted(part.func)).startswith(_FUNCTIONS) and name not in _MAKES:
            for argument in part.args[:1]:
                _bases(argument, found)
    return frozenset(found)


def _bases(node: ast.AST, found: set[str]) -> None:
    """The names at the bottom of `(a[1:] - b.c[0]).to(x)`."""
    while True:
        if isinstance(node, ast.Subscript):
            node = node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            node = node.func.value
        elif isinstance(node, ast.BinOp):
            _bases(node.left, found)
            node = node.right
        else:
            break
    name = dotted(node)
    if name:
        found.add(name)
