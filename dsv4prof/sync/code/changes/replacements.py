"""Whether what stands in a sync's place gives the same result, proven from the text of both versions.

These are proofs: an exact `output_size`, a fill on the device or a slice instead of an upload of equal numbers, a copy
that is read only after its event, a value that is read once instead of twice, a shape in a log line. Everything else (a
host mirror, another algorithm) may be right, and is not proven.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from dsv4prof.sync.code.changes.statements import read_once, sliced, stood_alone, told_by_shape
from dsv4prof.sync.code.changes.tree import Function, called_name
from dsv4prof.sync.code.found import Found

_REPEAT = "repeat_interleave"
_TOTAL = "output_size"
_COPIES = frozenset({"to", "cpu", "copy_"})
_HAZARD_TOTAL = "DSV201"
_HAZARD_READ = "DSV202"
_BRANCHING = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.Try, ast.ExceptHandler, ast.match_case)
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


class Proof(NamedTuple):
    """`line` is that of the replacement in the new version, 0 where none was found, `wait` that of the wait for an
    event which is part of it."""

    holds: bool
    text: str
    line: int = 0
    wait: int = 0


def proof_of(
    old: Found, function: Function, new: Sequence[Found], before: Function | None = None, others: Sequence[Found] = ()
) -> Proof:
    """Whether the replacement of `old` in the new version of its function is proven, and the sentence that says how.

    `new` is everything found in the new version of the file, `others` in the old one, `before` the old function.
    """
    expression = _expression(old.text)
    if expression is None:
        return Proof(False, "what replaces it could not be compared")
    hazards = [found for found in new if found.function == old.function]
    for judge in (_exact_total, _filled, _after_event):
        verdict = judge(expression, function, hazards, old.facts)
        if verdict is not None:
            return verdict
    same = (
        sliced(expression, old.form, function)
        or read_once(old, before, function, others)
        or told_by_shape(old, before, function, new)
    )
    if same is not None:
        return Proof(True, same.text, same.line)
    if stood_alone(old, before, expression):
        return Proof(False, "it did nothing but wait, and nothing shows that no one needed it")
    return Proof(False, "what replaces it is not proven to give the same values")


def _exact_total(old: ast.AST, function: Function, hazards: list[Found], facts: Mapping[str, str]) -> Proof | None:
    if not isinstance(old, ast.Call) or called_name(old) != _REPEAT:
        return None
    wanted = ast.dump(_without(old, _TOTAL))
    for call in _calls(function.node, _REPEAT):
        total = next((keyword.value for keyword in call.keywords if keyword.arg == _TOTAL), None)
        if total is None or ast.dump(_without(call, _TOTAL)) != wanted:
            continue
        unproven = any(found.code == _HAZARD_TOTAL and found.line <= call.lineno <= found.end_line for found in hazards)
        text = ast.unparse(total)
        if unproven:
            return Proof(False, f"output_size={text} is not proven to be the exact total", call.lineno)
        return Proof(True, f"output_size={text} is the exact total", call.lineno)
    return None


def _filled(old: ast.AST, function: Function, hazards: list[Found], facts: Mapping[str, str]) -> Proof | None:
    """torch.tensor([k] * n, ...) has become torch.full((n,), k, ...), or x[i] = k has become x[i].fill_(k)."""
    if isinstance(old, ast.Call) and called_name(old) in ("tensor", "as_tensor"):
        wanted = _fill_of(old)
        for call in _calls(function.node, "full"):
            if wanted is not None and _full_of(call) == wanted:
                return Proof(True, f"{ast.unparse(call)} makes the same tensor on the device", call.lineno)
        return None
    if isinstance(old, ast.Assign) and isinstance(old.targets[0], ast.Subscript):
        wanted_call = f"{ast.unparse(old.targets[0])}.fill_({ast.unparse(old.value)})"
        for call in _calls(function.node, "fill_"):
            if ast.unparse(call) == wanted_call and (facts or _is_place(old.targets[0].slice)):
                return Proof(True, f"{wanted_call} writes the same element by a kernel", call.lineno)
    return None


def _after_event(old: ast.AST, function: Function, hazards: list[Found], facts: Mapping[str, str]) -> Proof | None:
    """The copy no longer waits, an event is recorded and waited for, and no read before it was found."""
    if not isinstance(old, ast.Call) or not isinstance(old.func, ast.Attribute) or old.func.attr not in _COPIES:
        return None
    source = ast.unparse(old.func.value)
    for call in (item for name in _COPIES for item in _calls(function.node, name)):
        later = any(keyword.arg == "non_blocking" for keyword in call.keywords)
        if (
            not later
            or not isinstance(call.func, ast.Attribute)
            or source not in (ast.unparse(call.func.value), *(ast.unparse(arg) for arg in call.args))
        ):
            continue
        if any(found.code == _HAZARD_READ for found in hazards):
            return Proof(False, "the copy is read before its event", call.lineno)
        wait = _wait_of(call, function)
        if wait is not None:
            return Proof(
                True, f"the copy is read after the event waited for on line {wait.lineno}", call.lineno, wait.lineno
            )
        return Proof(False, "the copy no longer waits, and no event of it is waited for in its function", call.lineno)
    return None


def _wait_of(copied: ast.Call, function: Function) -> ast.Call | None:
    """The wait for an event that was recorded after the copy, both of which happen whenever the copy does."""
    always = _always_with(copied, function.node)
    events: set[str] = set()
    for call in always:
        if not isinstance(call.func, ast.Attribute) or call.lineno < copied.lineno:
            continue
        event = ast.unparse(call.func.value)
        if call.func.attr == "record":
            events.add(event)
        elif call.func.attr == "synchronize" and event in events:
            return call
    return None


def _always_with(wanted: ast.AST, node: ast.AST) -> list[ast.Call]:
    """Calls in order, without those in blocks that may be passed over though `wanted` was run."""
    calls: list[ast.Call] = []
    for child in ast.iter_child_nodes(node):
        may_not = isinstance(node, _BRANCHING) and isinstance(child, ast.stmt | ast.ExceptHandler)
        if isinstance(child, _SCOPES) or (may_not and not _holds(node, wanted)):
            continue
        if may_not and isinstance(node, ast.If) and not _same_arm(node, child, wanted):
            continue
        if isinstance(child, ast.Call):
            calls.append(child)
        calls += _always_with(wanted, child)
    return calls


def _holds(node: ast.AST, wanted: ast.AST) -> bool:
    return any(item is wanted for item in ast.walk(node))


def _same_arm(node: ast.If, child: ast.AST, wanted: ast.AST) -> bool:
    arm = node.body if child in node.body else node.orelse
    return any(_holds(item, wanted) for item in arm)


def _is_place(index: ast.expr) -> bool:
    """Numbers and slices give a view, into which a fill writes; lists and masks give a copy, a name may be either."""
    if isinstance(index, ast.Tuple):
        return all(_is_place(item) for item in index.elts)
    if isinstance(index, ast.UnaryOp):
        return isinstance(index.op, ast.USub) and _is_place(index.operand)
    if isinstance(index, ast.Constant):
        return index.value is None or index.value is ... or type(index.value) is int
    return isinstance(index, ast.Slice)


def _fill_of(call: ast.Call) -> tuple[str, ...] | None:
    """(size, number, keywords) of a list of equal numbers."""
    if not call.args:
        return None
    value = call.args[0]
    keywords = _keywords(call)
    if isinstance(value, ast.Constant | ast.UnaryOp):
        return ("()", ast.unparse(value), *keywords)
    if isinstance(value, ast.List) and value.elts and len({ast.dump(item) for item in value.elts}) == 1:
        return (f"({len(value.elts)},)", ast.unparse(value.elts[0]), *keywords)
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mult):
        for items, count in ((value.left, value.right), (value.right, value.left)):
            if isinstance(items, ast.List) and len(items.elts) == 1:
                return (f"({ast.unparse(count)},)", ast.unparse(items.elts[0]), *keywords)
    return None


def _full_of(call: ast.Call) -> tuple[str, ...] | None:
    if len(call.args) != 2:
        return None
    size = call.args[0]
    items = size.elts if isinstance(size, ast.Tuple | ast.List) else [size]
    text = "(" + "".join(f"{ast.unparse(item)}," for item in items) + ")" if items else "()"
    return (text, ast.unparse(call.args[1]), *_keywords(call))


def _keywords(call: ast.Call) -> list[str]:
    return sorted(f"{keyword.arg}={ast.unparse(keyword.value)}" for keyword in call.keywords)


def _without(call: ast.Call, keyword: str) -> ast.Call:
    bare = copy.copy(call)
    bare.keywords = [item for item in call.keywords if item.arg != keyword]
    return bare


def _calls(node: ast.AST, name: str) -> Iterator[ast.Call]:
    return (item for item in ast.walk(node) if isinstance(item, ast.Call) and called_name(item) == name)


def _expression(text: str) -> ast.AST | None:
    """The expression, or the whole assignment where an element is written."""
    try:
        statement = ast.parse(text, mode="exec").body[0]
    except (SyntaxError, ValueError, IndexError):
        return None
    return statement.value if isinstance(statement, ast.Expr) else statement
