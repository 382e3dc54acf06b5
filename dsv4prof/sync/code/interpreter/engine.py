"""Fills the tables, and runs one function or the body of one module."""

from __future__ import annotations

import ast

from dsv4prof.sync.code import values
from dsv4prof.sync.code.interpreter import conditions, dispatch, displays, expressions, invoke, nested, statements
from dsv4prof.sync.code.interpreter.environments import Environment
from dsv4prof.sync.code.interpreter.run import Run
from dsv4prof.sync.code.values import Value

for _table in (expressions.TABLE, conditions.TABLE, displays.TABLE, invoke.TABLE, nested.TABLE):
    dispatch.EVALUATORS.update(_table)
dispatch.STATEMENTS.update(statements.TABLE)


def function(run: Run, node: ast.FunctionDef | ast.AsyncFunctionDef, env: Environment) -> Value:
    """Runs a function on its parameters; the value that it returns."""
    arguments = [*node.args.posonlyargs, *node.args.args]
    if run.owner and arguments:
        run.receiver = arguments[0].arg
    dispatch.block(run, node.body, env)
    nested.finish(run)
    return values.join_all(run.returned) if run.returned else values.constant(None)


def body(run: Run, statements_: list[ast.stmt]) -> None:
    """Runs the statements of a module; what they define is run by itself."""
    dispatch.block(run, [s for s in statements_ if not isinstance(s, ast.ClassDef | ast.Import | ast.ImportFrom)], {})
    nested.finish(run)
