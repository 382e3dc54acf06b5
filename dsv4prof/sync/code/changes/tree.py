"""The functions of one version of a file, and who of them calls whom, by name."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterable, Iterator
from functools import cached_property, lru_cache

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


class Function:
    """One function: its name qualified as in `Found.function`, its lines, and the plain names that it calls."""

    def __init__(self, name: str, node: FunctionNode, path: str) -> None:
        self.name = name
        self.node = node
        self.path = path
        self.first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
        self.last = node.end_lineno or node.lineno

    @cached_property
    def calls(self) -> frozenset[str]:
        """Last parts of what it calls: `self.backend.plan(x)` is `plan`."""
        return frozenset(
            name for node in ast.walk(self.node) if isinstance(node, ast.Call) and (name := called_name(node))
        )

    @property
    def short(self) -> str:
        return self.node.name

    def touches(self, ranges: list[tuple[int, int]]) -> bool:
        """Whether any line of the ranges (first, last) lies in it."""
        return any(first <= self.last and last >= self.first for first, last in ranges)


class Tree:
    """A file's functions; of a file that does not parse none, since the audit itself reports that."""

    def __init__(self, path: str, content: bytes | None) -> None:
        self.path = path
        self.module = _parsed(content)
        self.functions: dict[str, Function] = {}
        if self.module is not None:
            for name, node in _functions(self.module, ""):
                self.functions[name] = Function(name, node, path)

    def touched(self, ranges: list[tuple[int, int]]) -> set[str]:
        """The outermost functions that hold a line of the ranges."""
        return {name.partition(".<locals>")[0] for name, made in self.functions.items() if made.touches(ranges)}

    def spans(self, names: Iterable[str]) -> list[tuple[int, int]]:
        """First and last line of those functions that are there."""
        return [(made.first, made.last) for name in names if (made := self.functions.get(name)) is not None]

    def around(self, line: int) -> Function | None:
        """The innermost function that holds the line."""
        inside = [function for function in self.functions.values() if function.first <= line <= function.last]
        return max(inside, key=lambda function: function.first, default=None)

    def callers(self, function: Function) -> list[Function]:
        """Functions of the file that call one of this name."""
        return [other for other in self.functions.values() if other is not function and function.short in other.calls]

    def called_by(self, function: Function) -> list[Function]:
        """Functions of the file whose name it calls."""
        return [other for other in self.functions.values() if other is not function and other.short in function.calls]


@lru_cache(maxsize=128)
def tree_of(path: str, content: bytes | None) -> Tree:
    """The tree of one version of a file, which several questions are asked of."""
    return Tree(path, content)


def called_name(call: ast.Call) -> str:
    """The last part of what is called; "" for a call of a call."""
    if isinstance(call.func, ast.Attribute):
        return call.func.attr
    return call.func.id if isinstance(call.func, ast.Name) else ""


def _functions(node: ast.AST, prefix: str) -> Iterator[tuple[str, FunctionNode]]:
    """Statements alone are walked: no expression holds a definition."""
    for field in ("body", "orelse", "finalbody", "handlers", "cases"):
        for child in getattr(node, field, ()):
            if isinstance(child, _SCOPES):
                name = prefix + child.name
                if isinstance(child, ast.ClassDef):
                    yield from _functions(child, f"{name}.")
                else:
                    yield name, child
                    yield from _functions(child, f"{name}.<locals>.")
            else:
                yield from _functions(child, prefix)


def _parsed(content: bytes | None) -> ast.Module | None:
    if content is None:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(content)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
