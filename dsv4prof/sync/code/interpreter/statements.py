"""Statements: where paths part, meet and end."""

from __future__ import annotations

import ast
from collections.abc import Callable

from dsv4prof.sync.code import semantics, values
from dsv4prof.sync.code.interpreter import guards, nested, targets, waits
from dsv4prof.sync.code.interpreter.dispatch import block, chain_of, evaluate, quietly
from dsv4prof.sync.code.interpreter.environments import Environment, changed, joined
from dsv4prof.sync.code.interpreter.expressions import binary, operator
from dsv4prof.sync.code.interpreter.run import Run, header_end
from dsv4prof.sync.code.values import ANYTHING, CALLABLE, HOST, HOST_NUMBER, NOTHING, UNKNOWN, Value


def _expression(run: Run, node: ast.Expr, env: Environment) -> Environment:
    if node.value.__class__ is ast.Call:
        # Nobody takes the value: there is no need to know what the function gives back.
        run.unused = node.value
    evaluate(run, node.value, env)
    return env


def _assign(run: Run, node: ast.Assign, env: Environment) -> Environment:
    value = evaluate(run, node.value, env)
    for target in node.targets:
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple) and value.items is not None:
            for part, held in zip(target.elts, value.items, strict=False):
                targets.assign(run, part, held, env, node)
            continue
        targets.assign(run, target, value, env, node)
        chain = chain_of(target)
        if chain:
            guards.remember(run, chain, node.value, env)
    return env


def _annotated(run: Run, node: ast.AnnAssign, env: Environment) -> Environment:
    told = run.world.annotations.value(ast.unparse(node.annotation), run.module, chain_of(node.target))
    if node.value is None:
        return env
    value = evaluate(run, node.value, env)
    if value.kinds == UNKNOWN and told is not ANYTHING:
        value = told
    targets.assign(run, node.target, value, env, node)
    return env


def _augmented(run: Run, node: ast.AugAssign, env: Environment) -> Environment:
    value = evaluate(run, node.value, env)
    if isinstance(node.target, ast.Subscript):
        targets.element(run, node.target, value, env, node, augmented=True)
        return env
    left = evaluate(run, node.target, env)
    result = binary(run, node, operator(node.op), left, value, env)
    targets.assign(run, node.target, result, env, node)
    return env


def _if(run: Run, node: ast.If, env: Environment) -> Environment | None:
    yes, no = guards.branch(run, node.test, env)
    run.conditions += 1
    after_yes = block(run, node.body, dict(yes)) if yes is not None else None
    after_no = block(run, node.orelse, dict(no)) if no is not None else None
    run.conditions -= 1
    return joined(after_yes, after_no)


def _while(run: Run, node: ast.While, env: Environment) -> Environment | None:
    return _loop(run, node, _forget_constants(node, env))


def _for(run: Run, node: ast.For | ast.AsyncFor, env: Environment) -> Environment | None:
    source = evaluate(run, node.iter, env)
    outcome = semantics.iterate(source)
    run.emit(node.iter, outcome.effects, env)
    element = targets.element_of(run, node.target, run.stamped(outcome.value, node.iter))
    return _loop(run, node, _forget_constants(node, env), element)


def _loop(
    run: Run, node: ast.While | ast.For | ast.AsyncFor, env: Environment, element: Value = ANYTHING
) -> Environment | None:
    """At most two turns: what the first leaves may make the second find more."""
    entry = env
    ends: list[Environment] = []
    after: Environment | None = entry
    for turn in range(2):
        run.exits.append([])
        run.statement = node.lineno, header_end(node)
        start = dict(entry)
        run.loops += 1
        if isinstance(node, ast.While):
            yes, no = guards.branch(run, node.test, start)
            ended = block(run, node.body, dict(yes)) if yes is not None else None
            if no is not None and turn:
                ends.append(no)
            elif no is not None:
                ends = [no]
        else:
            targets.assign(run, node.target, element, start, node.target)
            ended = block(run, node.body, start)
            ends = [entry]
        run.loops -= 1
        left = run.exits.pop()
        after = ended
        for exit_ in left:
            after = joined(after, exit_)
        if after is None:
            break
        again = joined(entry, after)
        assert again is not None
        if turn or not changed(entry, again):
            entry = again
            break
        entry = again
    result: Environment | None = None
    for end in (*ends, *([after] if after is not None else [])):
        result = joined(result, end)
    if node.orelse and result is not None:
        result = block(run, node.orelse, dict(result))
    return result


def _forget_constants(node: ast.stmt, env: Environment) -> Environment:
    """Numbers that the loop changes are not known in it: `i = 0` before it says nothing of `i` within."""
    numbers = [
        name
        for name, value in env.items()
        if value.__class__ is Value and value.kinds == HOST and value.const is not NOTHING
    ]
    if not numbers:
        return env
    names: frozenset[str] | None = getattr(node, "rebound", None)
    if names is None:
        names = frozenset(
            part.id for part in ast.walk(node) if part.__class__ is ast.Name and part.ctx.__class__ is ast.Store
        )
        node.rebound = names  # type: ignore[attr-defined]
    result = dict(env)
    for name in numbers:
        if name in names:
            result[name] = HOST_NUMBER
    return result


def _try(run: Run, node: ast.Try, env: Environment) -> Environment | None:
    ended = block(run, node.body, dict(env))
    start = joined(env, ended)
    run.conditions += 1
    after = block(run, node.orelse, ended) if ended is not None and node.orelse else ended
    for handler in node.handlers:
        inner = dict(start or env)
        if handler.name:
            inner[handler.name] = Value(kinds=values.OBJECT, ref="Exception")
        after = joined(after, block(run, handler.body, inner))
    run.conditions -= 1
    if node.finalbody:
        last = block(run, node.finalbody, dict(after if after is not None else start or env))
        return last if after is not None else None
    return after


def _with(run: Run, node: ast.With | ast.AsyncWith, env: Environment) -> Environment | None:
    for item in node.items:
        value = evaluate(run, item.context_expr, env)
        if item.optional_vars is not None:
            targets.assign(run, item.optional_vars, run.world.entered(value, run.level), env, item.optional_vars)
    streams = sum(waits.is_stream(item.context_expr) for item in node.items)
    run.streams += streams
    after = block(run, node.body, env)
    run.streams -= streams
    return after


def _match(run: Run, node: ast.Match, env: Environment) -> Environment | None:
    evaluate(run, node.subject, env)
    after: Environment | None = None
    run.conditions += 1
    complete = False
    for case in node.cases:
        inner: Environment | None = dict(env)
        assert inner is not None
        for part in ast.walk(case.pattern):
            name = getattr(part, "name", None) or getattr(part, "rest", None)
            if isinstance(name, str):
                inner[name] = run.world.assumed(name)
        if case.guard is not None:
            inner, _ = guards.branch(run, case.guard, inner)
        after = joined(after, block(run, case.body, dict(inner)) if inner is not None else None)
        complete = complete or (
            isinstance(case.pattern, ast.MatchAs) and case.pattern.pattern is None and not case.guard
        )
    run.conditions -= 1
    return after if complete else joined(after, env)


def _return(run: Run, node: ast.Return, env: Environment) -> None:
    run.returned.append(evaluate(run, node.value, env) if node.value is not None else values.constant(None))


def _raise(run: Run, node: ast.Raise, env: Environment) -> None:
    # Whoever raises has other worries than a wait: the texts of errors are no findings.
    for part in (node.exc, node.cause):
        if part is not None:
            quietly(run, part, env)


def _leave(run: Run, node: ast.Break | ast.Continue, env: Environment) -> None:
    if run.exits:
        run.exits[-1].append(env)


def _assert(run: Run, node: ast.Assert, env: Environment) -> Environment | None:
    yes, no = guards.branch(run, node.test, env, "assert")
    if node.msg is not None and no is not None:
        quietly(run, node.msg, dict(no))
    return yes


def _define(run: Run, node: ast.FunctionDef | ast.AsyncFunctionDef, env: Environment) -> Environment:
    if not run.function:
        # Of a module: a function of its own, which is run by itself.
        return env
    env[node.name] = nested.define(run, node, env)
    return env


def _class(run: Run, node: ast.ClassDef, env: Environment) -> Environment:
    env[node.name] = Value(kinds=CALLABLE)
    return env


def _import(run: Run, node: ast.Import | ast.ImportFrom, env: Environment) -> Environment:
    for name, value in run.world.imported(run.module, node):
        env[name] = value
    return env


def _delete(run: Run, node: ast.Delete, env: Environment) -> Environment:
    for target in node.targets:
        env.pop(chain_of(target), None)
    return env


def _nothing(run: Run, node: ast.stmt, env: Environment) -> Environment:
    return env


TABLE: dict[type, Callable[..., Environment | None]] = {
    ast.Expr: _expression,
    ast.Assign: _assign,
    ast.AnnAssign: _annotated,
    ast.AugAssign: _augmented,
    ast.If: _if,
    ast.While: _while,
    ast.For: _for,
    ast.AsyncFor: _for,
    ast.Try: _try,
    ast.With: _with,
    ast.AsyncWith: _with,
    ast.Match: _match,
    ast.Return: _return,
    ast.Raise: _raise,
    ast.Break: _leave,
    ast.Continue: _leave,
    ast.Assert: _assert,
    ast.FunctionDef: _define,
    ast.AsyncFunctionDef: _define,
    ast.ClassDef: _class,
    ast.Import: _import,
    ast.ImportFrom: _import,
    ast.Delete: _delete,
    ast.Global: _nothing,
    ast.Nonlocal: _nothing,
    ast.Pass: _nothing,
}
if hasattr(ast, "TryStar"):
    TABLE[ast.TryStar] = _try
if hasattr(ast, "TypeAlias"):
    TABLE[ast.TypeAlias] = _nothing
