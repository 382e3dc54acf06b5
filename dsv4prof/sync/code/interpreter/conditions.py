"""`and`, `or` and the conditional expression: each arm where the tests before it let it be reached."""

from __future__ import annotations

import ast

from msgspec.structs import replace

from dsv4prof.sync.code import values
from dsv4prof.sync.code.interpreter import guards
from dsv4prof.sync.code.interpreter.dispatch import Table, evaluate
from dsv4prof.sync.code.interpreter.environments import Environment
from dsv4prof.sync.code.interpreter.run import Run
from dsv4prof.sync.code.values import NONE, Value


def _boolean(run: Run, node: ast.BoolOp, env: Environment) -> Value:
    arms: list[Value] = []
    current: Environment | None = env
    either = isinstance(node.op, ast.Or)
    last = len(node.values) - 1
    outer = run.conditions
    for place, part in enumerate(node.values):
        if current is None:
            break
        value = evaluate(run, part, current)
        if place < last:
            yes, no = guards.decided(run, part, value, current)
            current = no if either else yes
            value = _without_none(value) if either else value
        arms.append(value)
        run.conditions = outer + 1
    run.conditions = outer
    return values.join_all(arms)


def _without_none(value: Value) -> Value:
    if value.kinds & NONE and value.kinds != NONE:
        return replace(value, kinds=value.kinds & ~NONE)
    return value


def _conditional(run: Run, node: ast.IfExp, env: Environment) -> Value:
    yes, no = guards.branch(run, node.test, env)
    run.conditions += 1
    arms = []
    if yes is not None:
        arms.append(evaluate(run, node.body, yes))
    if no is not None:
        arms.append(evaluate(run, node.orelse, no))
    run.conditions -= 1
    return values.join_all(arms)


TABLE: Table = {ast.BoolOp: _boolean, ast.IfExp: _conditional}
