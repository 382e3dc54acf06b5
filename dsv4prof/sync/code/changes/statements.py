"""Replacements that show in the whole statement alone: an element written as a slice, a value read once, a shape told.

The text of a finding is its expression. What stands in its place is known where the rest of the statement is the same.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from dsv4prof.sync.code.changes.tree import Function, called_name
from dsv4prof.sync.code.found import Found

AGAIN = "DSV112"
_FORMATTED = "DSV109"
_NUMBER_WRITTEN = "assign-element-number"
_LOGS = frozenset({"print", "debug", "info", "warning", "warn", "error", "exception", "critical", "log"})
_FACTS = frozenset({"shape", "dtype", "device", "ndim", "numel", "size", "dim"})
_COMPOUND = (ast.If, ast.While, ast.For, ast.AsyncFor, ast.With, ast.AsyncWith, ast.Try, ast.Match)
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


class Same(NamedTuple):
    """What gives the same result, in a sentence, and its line in the new version."""

    text: str
    line: int


def sliced(old: ast.AST, form: str, function: Function) -> Same | None:
    """x[0] = 5 has become x[0:1] = 5: the same elements, of any number of dimensions."""
    if not isinstance(old, ast.Assign) or not isinstance(old.targets[0], ast.Subscript):
        return None
    if not (form == _NUMBER_WRITTEN or _is_number(old.value)):
        return None
    target, value = old.targets[0], ast.dump(old.value)
    base, places = ast.dump(target.value), _places(target.slice)
    for new in ast.walk(function.node):
        if not isinstance(new, ast.Assign) or ast.dump(new.value) != value:
            continue
        there = new.targets[0]
        if not isinstance(there, ast.Subscript) or ast.dump(there.value) != base:
            continue
        others = _places(there.slice)
        if len(others) != len(places) or ast.dump(there) == ast.dump(target):
            continue
        if all(_is_same_place(one, other) for one, other in zip(places, others, strict=True)):
            return Same(f"{ast.unparse(new)} writes the same elements, without an upload", new.lineno)
    return None


def read_once(old: Found, before: Function | None, function: Function, others: Sequence[Found]) -> Same | None:
    """A second read of a value that nothing wrote (the old version has DSV112 there) has become the name of the first.

    `others` is everything found in the old version of the file.
    """
    if before is None or not any(_is_at(other, old) for other in others if other.code == AGAIN):
        return None
    statement = _statement(before, old)
    if statement is None:
        return None
    old_dumps = {ast.dump(item) for item in _simple(before.node)}
    bound = _bound(function.node)
    for kept in _simple(function.node):
        if not isinstance(kept, ast.Assign) or len(kept.targets) != 1 or not isinstance(kept.targets[0], ast.Name):
            continue
        name = kept.targets[0].id
        if ast.unparse(kept.value) != old.text or bound.count(name) != 1:
            continue
        wanted = ast.dump(_Replaced(old.text, name).visit(copy.deepcopy(statement)))
        for new in _simple(function.node):
            if new.lineno <= kept.lineno or ast.dump(_header(new)) != wanted:
                continue
            if not _written_between(kept, new, function, old_dumps):
                return Same(f"{name} holds what line {kept.lineno} has read already", new.lineno)
    return None


def told_by_shape(old: Found, before: Function | None, function: Function, new: Sequence[Found]) -> Same | None:
    """A line for people told the tensor's numbers, and now tells its shape: nothing else reads it."""
    if before is None or old.code != _FORMATTED:
        return None
    statement = _statement(before, old)
    call = _logged(statement)
    if call is None:
        return None
    known = {ast.dump(item) for item in _simple(before.node)}
    for candidate in _simple(function.node):
        there = _logged(candidate)
        if there is None or ast.dump(candidate) in known or ast.dump(there.func) != ast.dump(call.func):
            continue
        first, last = candidate.lineno, candidate.end_lineno or candidate.lineno
        if any(found.line <= last and found.end_line >= first for found in new):
            continue
        facts = [item for item in ast.walk(there) if isinstance(item, ast.Attribute) and item.attr in _FACTS]
        if any(ast.unparse(item.value) == old.text for item in facts):
            return Same(f"{ast.unparse(there)} needs no number of {old.text}", first)
    return None


def stood_alone(old: Found, before: Function | None, expression: ast.AST) -> bool:
    """Whether nothing took its result, so that there is none to replace."""
    statement = _statement(before, old) if before is not None else None
    return isinstance(statement, ast.Expr) and ast.dump(statement.value) == ast.dump(expression)


class _Replaced(ast.NodeTransformer):
    """A name in place of every expression of one text."""

    def __init__(self, text: str, name: str) -> None:
        self._text = text
        self._name = name

    def visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, ast.expr) and ast.unparse(node) == self._text:
            return ast.Name(self._name, ast.Load())
        return super().visit(node)


def _is_at(other: Found, old: Found) -> bool:
    return (other.path, other.line, other.column, other.text) == (old.path, old.line, old.column, old.text)


def _statement(function: Function, found: Found) -> ast.AST | None:
    """The statement of a finding, of a compound one what its header asks."""
    for item in _simple(function.node):
        if item.lineno == found.statement_line:
            return _header(item)
    return None


def _header(statement: ast.stmt) -> ast.AST:
    if isinstance(statement, ast.If | ast.While):
        return statement.test
    return statement.iter if isinstance(statement, ast.For) else statement


def _simple(node: ast.AST) -> Iterator[ast.stmt]:
    """Statements of a function in order, compound ones as themselves, without those of inner functions."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, _SCOPES):
            continue
        if isinstance(child, ast.stmt):
            yield child
        if isinstance(child, ast.stmt | ast.ExceptHandler | ast.match_case):
            yield from _simple(child)


def _bound(node: ast.AST) -> list[str]:
    """Every name as often as it is given a value, parameters too."""
    names = [item.id for item in ast.walk(node) if isinstance(item, ast.Name) and not isinstance(item.ctx, ast.Load)]
    return names + [item.arg for item in ast.walk(node) if isinstance(item, ast.arg)]


def _written_between(kept: ast.Assign, new: ast.stmt, function: Function, known: set[str]) -> bool:
    """Whether the change put something between the two that speaks of the value."""
    names = {item.id for item in ast.walk(kept.value) if isinstance(item, ast.Name)}
    for item in _simple(function.node):
        if not kept.lineno < item.lineno < new.lineno or isinstance(item, _COMPOUND) or ast.dump(item) in known:
            continue
        if any(isinstance(part, ast.Name) and part.id in names for part in ast.walk(item)):
            return True
    return False


def _logged(statement: ast.AST | None) -> ast.Call | None:
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        return statement.value if called_name(statement.value) in _LOGS else None
    return None


def _places(index: ast.expr) -> list[ast.expr]:
    return list(index.elts) if isinstance(index, ast.Tuple) else [index]


def _is_same_place(one: ast.expr, other: ast.expr) -> bool:
    """The number k and the slice k:k+1, as it can be written; anything with itself."""
    if ast.dump(one) == ast.dump(other):
        return True
    place = _whole(one)
    if place is None or not isinstance(other, ast.Slice) or _whole(other.step, 1) != 1:
        return False
    first = _whole(other.lower, 0)
    # From the last element on there is one; -1:0 would hold none.
    last = _whole(other.upper, 0 if first == -1 else None)
    return first == place and last == place + 1 and not (place == -1 and other.upper is not None)


def _whole(node: ast.expr | None, without: int | None = None) -> int | None:
    if node is None:
        return without
    negative = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub)
    inner = node.operand if isinstance(node, ast.UnaryOp) and negative else node
    if not isinstance(inner, ast.Constant) or type(inner.value) is not int:
        return None
    return -inner.value if negative else inner.value


def _is_number(node: ast.expr) -> bool:
    inner = node.operand if isinstance(node, ast.UnaryOp) else node
    return isinstance(inner, ast.Constant) and isinstance(inner.value, bool | int | float)
