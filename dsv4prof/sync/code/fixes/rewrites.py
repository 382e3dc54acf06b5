"""The rewrites themselves, on concrete syntax, so that comments and layout stay.

Each says None where the result might differ: another dtype for an empty list, an overflow that one form refuses, an
index that only one form checks. Compared value by value with torch 2.13 in tests/unit/sync/code/fixes.
"""

from __future__ import annotations

from collections.abc import Mapping

import libcst as cst

# torch.full refuses a number beyond float16's range where torch.tensor makes it infinite.
_LARGEST = 65_504
# And one beyond an 8-bit float's, which torch.tensor makes NaN or the largest: of these e4m3fnuz ends first.
_LARGEST_OF_ALL = 240
_ORDINARY = frozenset(
    {
        *("float64", "double", "float32", "float", "float16", "half", "bfloat16", "complex64", "complex128", "bool"),
        *("uint8", "int8", "int16", "short", "int32", "int", "int64", "long"),
    }
)
_LIST_MAKERS = frozenset({"tensor", "as_tensor"})
_KEPT_KEYWORDS = frozenset({"dtype", "device", "requires_grad"})
_EMPTY = cst.Module([])


def with_total(call: cst.Call, facts: Mapping[str, str]) -> cst.Call | None:
    """`repeat_interleave(x, counts)` with `output_size=` the exact total that the analysis has proven."""
    total = facts.get("total")
    if total is None or any(arg.star for arg in call.args):
        return None
    value = cst.parse_expression(total)
    for index, arg in enumerate(call.args):
        if arg.keyword is not None and arg.keyword.value == "output_size":
            given = arg.with_changes(value=value)
            return call.with_changes(args=[*call.args[:index], given, *call.args[index + 1 :]])
    args = list(call.args)
    if not args:
        return None
    last, comma = args[-1], args[-1].comma
    separator = _separator(call)
    args[-1] = last.with_changes(comma=separator)
    # A trailing comma stays one: the call keeps its layout.
    args.append(_keyword("output_size", value, comma))
    return call.with_changes(args=args)


def as_full(call: cst.Call, *, len_is_known: bool = True) -> cst.Call | None:
    """`torch.tensor([k] * n, device=d)` as `torch.full((n,), k, device=d)`: filled there, nothing is uploaded.

    `len_is_known` is False where `len` may be something else than the builtin.
    """
    if not _is_torch(call.func, _LIST_MAKERS) or not call.args or call.args[0].keyword or call.args[0].star:
        return None
    keywords = {arg.keyword.value: arg for arg in call.args[1:] if arg.keyword is not None}
    if len(keywords) != len(call.args) - 1 or not set(keywords) <= _KEPT_KEYWORDS or "device" not in keywords:
        return None
    found = _filled(call.args[0].value, has_dtype="dtype" in keywords, len_is_known=len_is_known)
    if found is None or not _fits(found[1], keywords.get("dtype")):
        return None
    size, number = found
    first = call.args[0]
    # The list's own comma, with the remark behind it, stays behind the number.
    comma = cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
    shape = first.with_changes(value=size, comma=comma, whitespace_after_arg=cst.SimpleWhitespace(""))
    return call.with_changes(
        func=cst.ensure_type(call.func, cst.Attribute).with_changes(attr=cst.Name("full")),
        args=[shape, first.with_changes(value=number), *call.args[1:]],
    )


def as_fill(assign: cst.Assign) -> cst.Expr | None:
    """`x[i] = 5` as `x[i].fill_(5)`: the number travels with the kernel. Only for what is a tensor for sure."""
    if len(assign.targets) != 1 or not isinstance(assign.targets[0].target, cst.Subscript):
        return None
    if _number(assign.value) is None:
        return None
    target = assign.targets[0].target
    return cst.Expr(
        cst.Call(cst.Attribute(target, cst.Name("fill_")), [cst.Arg(assign.value)]), semicolon=assign.semicolon
    )


def _fits(number: cst.BaseExpression, dtype: cst.Arg | None) -> bool:
    """Whether every dtype that this may be takes the number the same way in both forms."""
    if dtype is None or (isinstance(dtype.value, cst.Attribute) and dtype.value.attr.value in _ORDINARY):
        return True
    value = _number(number)
    # Of what is no whole number a float of powers of two makes something in one form alone.
    return isinstance(value, int) and abs(value) <= _LARGEST_OF_ALL


def _filled(
    value: cst.BaseExpression, *, has_dtype: bool, len_is_known: bool
) -> tuple[cst.BaseExpression, cst.BaseExpression] | None:
    """The size and the number of a list of equal numbers, or of a bare number."""
    if _number(value) is not None:
        return cst.Tuple([]), value
    if isinstance(value, cst.List) and value.elements:
        items = [element.value for element in value.elements]
        if any(isinstance(element, cst.StarredElement) for element in value.elements) or _number(items[0]) is None:
            return None
        if len({(type(_number(item)), repr(_number(item))) for item in items}) != 1:
            return None
        return _one_tuple(cst.Integer(str(len(items)))), items[0]
    if isinstance(value, cst.BinaryOperation) and isinstance(value.operator, cst.Multiply):
        for items_, count in ((value.left, value.right), (value.right, value.left)):
            if (
                isinstance(items_, cst.List)
                and len(items_.elements) == 1
                and _never_negative(count, has_dtype, len_is_known)
            ):
                number = items_.elements[0].value
                if _number(number) is not None and not isinstance(items_.elements[0], cst.StarredElement):
                    return _one_tuple(count), number
    return None


def _never_negative(count: cst.BaseExpression, has_dtype: bool, len_is_known: bool) -> bool:
    """A negative count makes an empty list and no tensor; an empty list has another dtype unless one is named."""
    if isinstance(count, cst.Integer):
        return int(count.evaluated_value) > 0
    if not has_dtype:
        return False
    if isinstance(count, cst.Call):
        name = count.func
        if isinstance(name, cst.Name):
            return name.value == "len" and len_is_known
        return isinstance(name, cst.Attribute) and name.attr.value in ("numel", "size") and len(count.args) <= 1
    return (
        isinstance(count, cst.Subscript)
        and isinstance(count.value, cst.Attribute)
        and count.value.attr.value == "shape"
    )


def _number(value: cst.BaseExpression) -> complex | None:
    """The literal's value where every dtype takes it the same way in both forms."""
    if isinstance(value, cst.Name):
        return {"True": True, "False": False}.get(value.value)
    sign = 1
    if isinstance(value, cst.UnaryOperation) and isinstance(value.operator, cst.Minus):
        sign, value = -1, value.expression
    if not isinstance(value, cst.Integer | cst.Float):
        return None
    number: float = value.evaluated_value
    return sign * number if abs(number) <= _LARGEST else None


def _is_torch(func: cst.BaseExpression, names: frozenset[str]) -> bool:
    return (
        isinstance(func, cst.Attribute)
        and isinstance(func.value, cst.Name)
        and func.value.value == "torch"
        and func.attr.value in names
    )


def _one_tuple(value: cst.BaseExpression) -> cst.Tuple:
    return cst.Tuple([cst.Element(value, comma=cst.Comma())])


def _keyword(name: str, value: cst.BaseExpression, comma: cst.Comma | cst.MaybeSentinel) -> cst.Arg:
    tight = cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace(""))
    return cst.Arg(value, keyword=cst.Name(name), equal=tight, comma=comma)


def _separator(call: cst.Call) -> cst.Comma:
    """How this call separates its arguments: on one line, or each on its own."""
    for arg in call.args[:-1]:
        if isinstance(arg.comma, cst.Comma):
            return arg.comma
    return cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))


def source_of(node: cst.CSTNode) -> str:
    """The node as text."""
    return _EMPTY.code_for_node(node)
