"""The tables of evaluators, and the calls through them. `engine` fills them, so that evaluators can need each other."""

from __future__ import annotations

import ast
from collections.abc import Callable

from dsv4prof.sync.code.gather import dotted
from dsv4prof.sync.code.interpreter.environments import Environment
from dsv4prof.sync.code.interpreter.run import Run, header_end
from dsv4prof.sync.code.values import Value

EVALUATORS: dict[type, Callable[[Run, ast.AST, Environment], Value]] = {}
STATEMENTS: dict[type, Callable[..., Environment | None]] = {}
Table = dict[type, Callable[..., Value]]


def evaluate(run: Run, node: ast.expr, env: Environment) -> Value:
    """The value of an expression; what evaluating it does goes to the run."""
    return EVALUATORS[node.__class__](run, node, env)


def quietly(run: Run, node: ast.expr, env: Environment) -> Value:
    """The value alone."""
    sites, run.sites = run.sites, None
    try:
        return EVALUATORS[node.__class__](run, node, env)
    finally:
        run.sites = sites


def block(run: Run, body: list[ast.stmt], env: Environment | None) -> Environment | None:
    """The environment after the statements; None when every path ends within."""
    for statement in body:
        if env is None:
            return None
        run.statement = statement.lineno, header_end(statement)
        env = STATEMENTS[statement.__class__](run, statement, env)
    return env


def names_in(node: ast.AST) -> frozenset[str]:
    """All names below a node, kept on the node."""
    known: frozenset[str] | None = getattr(node, "names_within", None)
    if known is None:
        found = frozenset(part.id for part in ast.walk(node) if part.__class__ is ast.Name)
        known = node.names_within = found  # type: ignore[attr-defined]
    return known


def chain_of(node: ast.AST) -> str:
    """`a.b.c` of names and attributes, else "". Kept on the node: it is asked for on every visit."""
    known: str | None = getattr(node, "chain", None)
    if known is None:
        known = node.chain = dotted(node)  # type: ignore[attr-defined]
    return known
