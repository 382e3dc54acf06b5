"""What a program wrote where it was caught: the expression at an instruction, and the name that decides its form.

A layer that only knows that something waited knows the instruction as well, and from Python 3.11 on that is a place in
a line.
"""

from __future__ import annotations

import ast
import dis
import linecache
from functools import lru_cache
from itertools import islice
from types import CodeType

import msgspec

_BY_OPERATION = {
    "BINARY_SUBSCR": "__getitem__",
    "BINARY_SLICE": "__getitem__",
    "STORE_SUBSCR": "__setitem__",
    "STORE_SLICE": "__setitem__",
    "UNARY_NOT": "__bool__",
    "TO_BOOL": "__bool__",
    "FORMAT_VALUE": "__format__",
    "FORMAT_SIMPLE": "__format__",
    "FORMAT_WITH_SPEC": "__format__",
    "CONTAINS_OP": "__contains__",
}
# Builtins that read a value, by the method that torch is asked for.
_BUILTINS = {"int": "__int__", "float": "__float__", "bool": "__bool__", "complex": "__complex__", "range": "__index__"}
_LONGEST = 160

# The form of a call that waited, by what was called: what a person would guess who sees the line alone.
FORMS = {
    "item": "item",
    "__int__": "scalar-conversion",
    "__float__": "scalar-conversion",
    "__complex__": "scalar-conversion",
    "__index__": "range-bound",
    "__bool__": "truth-condition",
    "__contains__": "truth-contains",
    "__format__": "format-fstring",
    "str": "format-str",
    "repr": "format-str",
    "print": "format-print",
    "tolist": "tolist",
    "cpu": "cpu-method",
    "numpy": "numpy-force",
    "nonzero": "nonzero",
    "where": "where-condition-only",
    "argwhere": "argwhere",
    "masked_select": "masked-select",
    "combinations": "combinations",
    "unique": "unique",
    "unique_consecutive": "unique-consecutive",
    "bincount": "bincount",
    "histc": "histc-auto-range",
    "repeat_interleave": "repeat-interleave-tensor",
    "one_hot": "one-hot-auto",
    "isin": "isin",
    "equal": "torch-equal",
    "allclose": "allclose",
    "is_nonzero": "is-nonzero",
    "tensor": "tensor-from-host",
    "as_tensor": "as-tensor-from-host",
    "new_tensor": "new-tensor",
    "cuda": "cuda-method",
    "arange": "arange-bound",
    "linspace": "linspace-bound",
    "zeros": "factory-size",
    "ones": "factory-size",
    "empty": "factory-size",
    "full": "factory-size",
    "narrow": "narrow-bound",
    "view": "view-size",
    "reshape": "view-size",
    "expand": "view-size",
    "masked_fill": "masked-fill-tensor",
    "masked_fill_": "masked-fill-tensor",
    "index_fill": "index-fill-tensor",
    "index_fill_": "index-fill-tensor",
    "save": "serialize",
    "dumps": "serialize",
}


class Expression(msgspec.Struct, frozen=True):
    """`text` on one line; `name`: the function or special method that is called there, "" if that is unclear. `sliced`
    where an index has a slice in it.
    """

    text: str
    name: str = ""
    sliced: bool = False


@lru_cache(maxsize=4096)
def expression_at(code: CodeType, instruction: int) -> Expression | None:
    """What stands at an instruction; None where the interpreter or the source does not tell."""
    positions = getattr(code, "co_positions", None)
    if positions is None or instruction < 0:
        return None
    line, end_line, column, end_column = next(islice(positions(), instruction // 2, None), (None,) * 4)
    if line is None or end_line is None or column is None or end_column is None:
        return None
    # Columns of instructions count bytes.
    lines = [linecache.getline(code.co_filename, number).encode() for number in range(line, end_line + 1)]
    if not all(lines):
        return None
    lines[-1] = lines[-1][:end_column]
    lines[0] = lines[0][column:]
    text = b"".join(lines).decode(errors="replace")
    whole = " ".join(text.split())
    shown = whole if len(whole) <= _LONGEST else whole[: _LONGEST - 3] + "..."
    return Expression(shown, _name(code, instruction, text), sliced=_sliced(text))


def _sliced(text: str) -> bool:
    try:
        node = ast.parse(text.strip(), mode="eval").body
    except SyntaxError:
        return False
    return isinstance(node, ast.Subscript) and any(isinstance(each, ast.Slice) for each in ast.walk(node.slice))


def _name(code: CodeType, instruction: int, text: str) -> str:
    operation = dis.opname[code.co_code[instruction]]
    if operation in _BY_OPERATION:
        return _BY_OPERATION[operation]
    if "JUMP" in operation and "IF" in operation:
        return "__bool__"
    try:
        node = ast.parse(text.strip(), mode="eval").body
    except SyntaxError:
        return ""
    if isinstance(node, ast.Subscript):
        return "__getitem__"
    if not isinstance(node, ast.Call):
        return ""
    if isinstance(node.func, ast.Attribute):
        return node.func.attr
    return _BUILTINS.get(node.func.id, node.func.id) if isinstance(node.func, ast.Name) else ""
