"""What stands in square brackets."""

from __future__ import annotations

import ast

from dsv4prof.sync.code import semantics, values
from dsv4prof.sync.code.interpreter.dispatch import evaluate
from dsv4prof.sync.code.interpreter.environments import Environment
from dsv4prof.sync.code.interpreter.run import Run
from dsv4prof.sync.code.values import Value


def index_of(run: Run, node: ast.expr, env: Environment) -> Value:
    """The value of an index: a slice with its bounds, a tuple, or an expression."""
    if isinstance(node, ast.Slice):
        parts = [None if part is None else evaluate(run, part, env) for part in (node.lower, node.upper, node.step)]
        return semantics.slice_value(parts[0], parts[1], parts[2])
    if isinstance(node, ast.Tuple):
        return values.sequence(tuple(index_of(run, part, env) for part in node.elts), "tuple")
    return evaluate(run, node, env)
