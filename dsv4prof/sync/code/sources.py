"""The syntax of functions, read when it is wanted and forgotten when there is too much of it."""

from __future__ import annotations

import ast
from collections import OrderedDict
from pathlib import Path

from dsv4prof.sync.code import files, parse
from dsv4prof.sync.code.facts import Function, Module
from dsv4prof.sync.code.gather import blocks
from dsv4prof.sync.code.options import AuditOptions

# Bytes of source whose syntax is kept from the first reading, and of what was read again later; syntax takes about 30
# times as much. What was kept stays: everything is asked for in the order in which it came, where the oldest is next.
_KEPT = 13_000_000
_AGAIN = 2_000_000

_DEFINED = (ast.FunctionDef, ast.AsyncFunctionDef)
Definition = ast.FunctionDef | ast.AsyncFunctionDef


class Sources:
    """Files below a root as text and syntax. `share` processes divide the memory among them."""

    def __init__(self, root: Path, options: AuditOptions, share: int = 1) -> None:
        self.root = root
        self.options = options
        self._lines: OrderedDict[str, list[str]] = OrderedDict()
        self._kept: dict[tuple[str, int], Definition] = {}
        self._functions: OrderedDict[tuple[str, int], tuple[int, Definition | None]] = OrderedDict()
        self._kept_size = 0
        self._bodies: dict[str, list[ast.stmt]] = {}
        self._size = 0
        self._room = _KEPT // share

    def keep(self, module: Module, tree: ast.Module, text: str) -> None:
        """Keeps the functions of a module that was just parsed, as far as there is room."""
        if module.body_tensors:
            self._bodies[module.path] = [s for s in tree.body if not isinstance(s, (*_DEFINED, ast.ClassDef))]
        wanted = {function.line: function.end_line for function in module.functions if function.tensors}
        if not wanted:
            return
        average = len(text) // (module.lines or 1) + 1
        for node in _definitions(tree.body):
            if node.lineno not in wanted:
                continue
            size = average * (wanted[node.lineno] - node.lineno + 1)
            if self._kept_size + size > self._room:
                return
            self._kept[module.path, node.lineno] = node
            self._kept_size += size

    def drop(self) -> None:
        """Forgets all syntax: the largest thing that an audit holds."""
        self._kept.clear()
        self._bodies.clear()
        self._functions.clear()
        self._lines.clear()

    def lines(self, path: str) -> list[str]:
        """The lines of a file; none of a file that cannot be read."""
        known = self._lines.get(path)
        if known is None:
            try:
                known = files.decode(files.read(self.root, path, self.options)).split("\n")
            except (OSError, UnicodeDecodeError, SyntaxError, LookupError):
                known = []
            self._lines[path] = known
            if len(self._lines) > 64:
                self._lines.popitem(last=False)
        else:
            self._lines.move_to_end(path)
        return known

    def function(self, module: Module, function: Function) -> Definition | None:
        """The syntax of a function."""
        key = module.path, function.line
        kept = self._kept.get(key)
        if kept is not None:
            return kept
        held = self._functions.get(key)
        if held is not None:
            self._functions.move_to_end(key)
            return held[1]
        lines = self.lines(module.path)
        node = parse.part_of(lines, function.line, function.end_line)
        found = node if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else None
        size = sum(map(len, lines[function.line - 1 : function.end_line]))
        self._functions[key] = size, found
        self._size += size
        while self._size > _AGAIN and len(self._functions) > 1:
            _, (gone, _) = self._functions.popitem(last=False)
            self._size -= gone
        return found

    def body(self, module: Module) -> list[ast.stmt]:
        """The statements of a module that define nothing."""
        kept = self._bodies.get(module.path)
        if kept is not None:
            return kept
        read = parse.parse(module.path, "\n".join(self.lines(module.path)).encode())
        return read[0].body if isinstance(read, tuple) else []


def _definitions(body: list[ast.stmt]) -> list[Definition]:
    found: list[Definition] = []
    for statement in blocks(body):
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            found.append(statement)
        elif isinstance(statement, ast.ClassDef):
            found.extend(_definitions(statement.body))
    return found
