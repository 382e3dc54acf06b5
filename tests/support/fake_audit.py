"""A detector that knows three calls and no types, in place of the real one: what is tested is how findings are lived
with, not how they are found."""

from __future__ import annotations

import ast
import sys
import types
from pathlib import Path

import pytest

from dsv4prof.sync.code.files import discover, overlaid, read, wanted
from dsv4prof.sync.code.found import Audit, Found, Problem, Step
from dsv4prof.sync.code.options import AuditOptions
from dsv4prof.sync.code.values import Why

_CALLS = {"item": ("DSV101", "item", "certain"), "tolist": ("DSV102", "tolist", "likely"),
          "numpy": ("DSV104", "numpy-force", "possible")}  # fmt: skip


def install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the real detector's place for one test."""
    module = types.ModuleType("dsv4prof.sync.code.audit")
    module.audit = audit  # type: ignore[attr-defined]
    module.versions = versions  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "dsv4prof.sync.code.audit", module)


def audit(root: Path, options: AuditOptions) -> Audit:
    """`.item()` is certain, `.tolist()` likely, `.numpy()` possible; functions called forward* are hot."""
    found: list[Found] = []
    problems: list[Problem] = []
    paths: list[str] = []
    for path in wanted(overlaid(discover(root, options), options), root, options):
        try:
            tree = ast.parse(read(root, path, options))
        except (SyntaxError, ValueError) as error:
            problems.append(Problem(path, f"it is no Python 3: {error.args[0]}", getattr(error, "lineno", 0) or 0))
            continue
        paths.append(path)
        _visit(tree, path, (), 0, found)
    found.sort(key=lambda each: (each.path, each.line, each.column))
    return Audit(root=str(root), files=len(paths), lines=10, functions=1, found=found, problems=problems, paths=paths)


def versions(root: Path, now: AuditOptions, before: AuditOptions) -> tuple[Audit, Audit]:
    """The same of two states."""
    nothing = Audit(root=str(root), files=0, lines=0, functions=0, found=[])
    return (audit(root, now) if now.paths else nothing), (audit(root, before) if before.paths else nothing)


def _visit(node: ast.AST, path: str, names: tuple[str, ...], loop: int, found: list[Found]) -> None:
    for child in ast.iter_child_nodes(node):
        inner, depth = names, loop
        if isinstance(child, ast.FunctionDef | ast.ClassDef):
            inner, depth = (*names, child.name), 0
        if isinstance(child, ast.For | ast.While):
            depth += 1
        if isinstance(child, ast.stmt):
            for call in _calls(child):
                found.append(_found(call, child, path, names, depth))
        _visit(child, path, inner, depth, found)


def _calls(statement: ast.stmt) -> list[ast.Call]:
    """Those of the statement itself, of a compound one its header."""
    blocks = {id(each) for name in ("body", "orelse", "finalbody") for each in getattr(statement, name, [])}
    calls: list[ast.Call] = []
    waiting: list[ast.AST] = [statement]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _CALLS:
            calls.append(node)
        waiting += [child for child in ast.iter_child_nodes(node) if id(child) not in blocks]
    return calls


def _found(call: ast.Call, statement: ast.stmt, path: str, names: tuple[str, ...], loop: int) -> Found:
    code, form, level = _CALLS[call.func.attr]  # type: ignore[attr-defined]
    body = getattr(statement, "body", None)
    end = body[0].lineno - 1 if body else statement.end_lineno
    function = ".".join(names)
    hot = (Step("run_batch", path, 1), Step(function, path, statement.lineno)) if "forward" in function else ()
    return Found(
        path=path,
        line=call.lineno,
        end_line=call.end_lineno or call.lineno,
        column=call.col_offset,
        end_column=call.end_col_offset or 0,
        statement_line=statement.lineno,
        statement_end=max(end or 0, statement.lineno),
        code=code,
        form=form,
        level=level,
        function=function,
        text=ast.unparse(call),
        reason="`x` is a device tensor",
        why=Why("annotated torch.Tensor", 1, "", Why("made in maker()", 2, path)),
        loop=loop,
        hot=hot,
    )
