"""Functions within functions: interpreted where they are called, with the arguments and with what is known there.

One that the function around it never calls (a callback) is interpreted at the end, on its annotations alone.
"""

from __future__ import annotations

import ast

from dsv4prof.sync.code import values
from dsv4prof.sync.code.effects import Args
from dsv4prof.sync.code.gather import dotted
from dsv4prof.sync.code.interpreter.dispatch import Table, block, evaluate
from dsv4prof.sync.code.interpreter.environments import Environment
from dsv4prof.sync.code.interpreter.run import Run
from dsv4prof.sync.code.values import ANYTHING, CALLABLE, UNKNOWN, Value

# Calls with other arguments than the first ones are interpreted again, but not for ever.
_CALLS = 3


class Closure:
    """A nested function and what was known where it was defined."""

    __slots__ = ("calls", "env", "function", "node", "running")

    def __init__(
        self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, env: Environment, function: str
    ) -> None:
        self.node = node
        self.env = env
        self.function = function
        self.calls: list[tuple[dict[str, Value], Value]] = []
        self.running = False


def lambda_(run: Run, node: ast.Lambda, env: Environment) -> Value:
    """A lambda is a function without a name."""
    return _kept(run, node, env)


def define(run: Run, node: ast.FunctionDef | ast.AsyncFunctionDef, env: Environment) -> Value:
    """The value of a function's name; its defaults are evaluated now."""
    for default in (*node.args.defaults, *(d for d in node.args.kw_defaults if d is not None)):
        evaluate(run, default, env)
    if run.world.is_kernel(run.module, (dotted(_function(d)) for d in node.decorator_list)):
        return Value(kinds=CALLABLE)
    return _kept(run, node, env)


def call(run: Run, ref: str, args: Args, env: Environment) -> Value:
    """The value of calling the nested function `ref`."""
    closure = run.closures.get(ref)
    if closure is None or closure.running:
        return ANYTHING
    given = _bound(run, closure.node, args)
    for known, value in closure.calls:
        if known == given:
            return value
    if len(closure.calls) >= _CALLS:
        return values.join_all([value for _, value in closure.calls])
    # What the function around it knows by now counts, where the call stands in that function.
    around = env if run.function == closure.function else closure.env
    value = _carried_out(run, closure, {**closure.env, **around}, given)
    closure.calls.append((given, value))
    return value


def finish(run: Run) -> None:
    """Interprets the nested functions that nobody called."""
    for _ in range(4):
        left = [closure for closure in run.closures.values() if not closure.calls]
        if not left:
            return
        for closure in left:
            given = _bound(run, closure.node, Args())
            closure.calls.append((given, _carried_out(run, closure, dict(closure.env), given)))


def _carried_out(run: Run, closure: Closure, env: Environment, given: dict[str, Value]) -> Value:
    node = closure.node
    env.update(given)
    name = "<lambda>" if isinstance(node, ast.Lambda) else node.name
    outer = run.function, run.loops, run.conditions, run.returned, run.exits, run.statement, run.anchor
    run.function = f"{closure.function}.<locals>.{name}" if closure.function else name
    run.loops = run.conditions = 0
    run.returned, run.exits, run.anchor = [], [], None
    closure.running = True
    if isinstance(node, ast.Lambda):
        run.statement = node.lineno, node.end_lineno or node.lineno
        value = evaluate(run, node.body, env)
    else:
        block(run, node.body, env)
        value = values.join_all(run.returned) if run.returned else values.constant(None)
    closure.running = False
    run.function, run.loops, run.conditions, run.returned, run.exits, run.statement, run.anchor = outer
    return value


def _kept(run: Run, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, env: Environment) -> Value:
    ref = f"local:{node.lineno}:{node.col_offset}"
    known = run.closures.get(ref)
    if known is None:
        run.closures[ref] = Closure(node, dict(env), run.function)
    else:
        known.env = dict(env)
    return Value(kinds=CALLABLE, ref=ref)


def _bound(run: Run, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, args: Args) -> dict[str, Value]:
    """The parameters by the arguments, by annotation where those tell nothing, by name where that does not either."""
    spec = node.args
    bound: dict[str, Value] = {}
    positional = [*spec.posonlyargs, *spec.args]
    for place, arg in enumerate([*positional, *spec.kwonlyargs]):
        value = args.get(place if place < len(positional) else -1, arg.arg)
        bound[arg.arg] = value if value is not None and value.kinds != UNKNOWN else _parameter(run, arg)
    if spec.vararg:
        bound[spec.vararg.arg] = Value(kinds=values.SEQUENCE)
    if spec.kwarg:
        bound[spec.kwarg.arg] = Value(kinds=values.MAPPING)
    return bound


def _parameter(run: Run, arg: ast.arg) -> Value:
    if arg.annotation is not None:
        told = run.world.annotations.value(ast.unparse(arg.annotation), run.module, arg.arg)
        if told is not ANYTHING:
            return told
    return run.world.assumed(arg.arg)


def _function(decorator: ast.expr) -> ast.expr:
    return decorator.func if isinstance(decorator, ast.Call) else decorator


TABLE: Table = {ast.Lambda: lambda_}
