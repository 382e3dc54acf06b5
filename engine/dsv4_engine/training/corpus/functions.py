"""Single functions, methods and classes of a module, so that a model learns where one ends."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

SHORTEST, LONGEST = 3, 80
"""Lines of what is taken, decorators included."""


@dataclass(frozen=True)
class Function:
    """name: as defined. arguments: as written between the parentheses, on one line; None for a class.

    purpose: the docstring's first sentence, empty without a docstring. source: dedented, one newline at the end.
    """

    name: str
    arguments: str | None
    purpose: str
    source: str


def functions_of(text: str) -> list[Function]:
    """What a module defines at its top and in its classes, in order; empty for a text that does not parse.

    A class of at most LONGEST lines stands as a whole, and its documented methods by themselves too.
    """
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return []
    lines = text.split("\n")
    taken = (_function(node, lines) for node in _definitions(tree, within=None))
    return [function for function in taken if function is not None]


_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def _definitions(owner: ast.Module | ast.ClassDef, *, within: ast.ClassDef | None) -> Iterator[_Definition]:
    for node in owner.body:
        if isinstance(node, ast.ClassDef):
            yield node
            yield from _definitions(node, within=node)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (
            within is None or not _fits(within) or ast.get_docstring(node)
        ):
            yield node


def _span(node: _Definition) -> tuple[int, int]:
    """First line with decorators, last line; both from 1."""
    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
    return first, node.end_lineno or node.lineno


def _fits(node: _Definition) -> bool:
    first, last = _span(node)
    return SHORTEST <= last - first + 1 <= LONGEST


def _function(node: _Definition, lines: list[str]) -> Function | None:
    if not _fits(node):
        return None
    first, last = _span(node)
    source = _dedented(lines[first - 1 : last], node.col_offset)
    if source is None:
        return None
    arguments = None if isinstance(node, ast.ClassDef) else ast.unparse(node.args)
    return Function(node.name, arguments, _purpose(ast.get_docstring(node)), source)


def _dedented(lines: list[str], columns: int) -> str | None:
    """None where a line of a string begins left of the definition: it cannot be moved without changing it."""
    if any(line[:columns].strip() for line in lines):
        return None
    return "\n".join(line[columns:] for line in lines) + "\n"


def _purpose(docstring: str | None) -> str:
    """The first sentence of the first paragraph, on one line, with a full stop."""
    paragraph = " ".join((docstring or "").strip().split("\n\n")[0].split())
    if not paragraph:
        return ""
    end = paragraph.find(". ")
    sentence = paragraph if end < 0 else paragraph[: end + 1]
    return sentence if sentence[-1] in ".!?:" else f"{sentence}."
