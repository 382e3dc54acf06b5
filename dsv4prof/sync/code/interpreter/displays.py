"""Lists, tuples, dicts and comprehensions: what is in them, and what filling them does."""

from __future__ import annotations

import ast

from dsv4prof.sync.code import semantics, values
from dsv4prof.sync.code.interpreter import guards, targets
from dsv4prof.sync.code.interpreter.dispatch import Table, chain_of, evaluate, quietly
from dsv4prof.sync.code.interpreter.environments import Environment
from dsv4prof.sync.code.interpreter.keyed import keyed
from dsv4prof.sync.code.interpreter.run import Run
from dsv4prof.sync.code.values import ANYTHING, Value

# A longer display is a table of constants: its first elements speak for the rest.
_DISPLAY = 64


def elements(run: Run, nodes: list[ast.expr], env: Environment) -> tuple[Value, ...] | None:
    """The values of a display; None where its length is not known."""
    if len(nodes) > _DISPLAY and isinstance(nodes[0], ast.Constant | ast.Tuple | ast.List):
        nodes = nodes[:8]
        for node in nodes:
            evaluate(run, node, env)
        return None
    made: list[Value] = []
    whole = True
    for node in nodes:
        if isinstance(node, ast.Starred):
            value = evaluate(run, node.value, env)
            outcome = semantics.iterate(value)
            run.emit(node, outcome.effects, env)
            if value.items is not None:
                made.extend(value.items)
            else:
                whole = False
                made.append(outcome.value)
        else:
            made.append(evaluate(run, node, env))
    return tuple(made) if whole else None


def _display(run: Run, node: ast.List | ast.Tuple | ast.Set, env: Environment) -> Value:
    kind = {ast.List: "list", ast.Tuple: "tuple", ast.Set: "set"}[node.__class__]
    made = elements(run, node.elts, env)
    if made is not None:
        return values.sequence(made, kind)
    return values.sequence_of(quietly(run, node.elts[0], env) if node.elts else ANYTHING, kind)


def _dict(run: Run, node: ast.Dict, env: Environment) -> Value:
    made: list[Value] = []
    names: list[str] = []
    for key, value in zip(node.keys[:_DISPLAY], node.values[:_DISPLAY], strict=True):
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            names.append(key.value)
        elif key is not None:
            evaluate(run, key, env)
        held = evaluate(run, value, env)
        made.append(held if key is not None else held.element or ANYTHING)
    if not made:
        return Value(kinds=values.MAPPING)
    if len(names) == len(node.keys) == len(set(names)):
        return keyed(dict(zip(names, made, strict=True)))
    return values.mapping_of(values.join_all(made))


def _comprehension(
    run: Run, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp, env: Environment
) -> Value:
    inner: Environment | None = dict(env)
    same = ""
    loops = run.loops
    tests = 0
    for generator in node.generators:
        if inner is None:
            break
        source = evaluate(run, generator.iter, inner)
        outcome = semantics.iterate(source)
        run.emit(generator.iter, outcome.effects, inner)
        same = source.same
        run.loops += 1
        targets.assign(run, generator.target, run.stamped(outcome.value, generator.iter), inner, generator.target)
        for condition in generator.ifs:
            if inner is None:
                break
            inner, _ = guards.branch(run, condition, inner)
            run.conditions += 1
            tests += 1
    element = ANYTHING
    if inner is not None:
        if isinstance(node, ast.DictComp):
            evaluate(run, node.key, inner)
            element = evaluate(run, node.value, inner)
        else:
            element = evaluate(run, node.elt, inner)
    run.loops = loops
    run.conditions -= tests
    if isinstance(node, ast.DictComp):
        return values.mapping_of(element)
    kind = {ast.ListComp: "list", ast.SetComp: "set", ast.GeneratorExp: "generator"}[node.__class__]
    keeps = len(node.generators) == 1 and not tests and _is_element(node.elt, node.generators[0].target)
    return values.sequence_of(element, kind, same=same if keeps else "")


def _is_element(made: ast.expr, target: ast.expr) -> bool:
    """`[x for x in xs]` or `[int(x) for x in xs]`."""
    if isinstance(made, ast.Call) and len(made.args) == 1 and chain_of(made.func) == "int":
        made = made.args[0]
    return isinstance(made, ast.Name) and isinstance(target, ast.Name) and made.id == target.id


TABLE: Table = {
    ast.List: _display,
    ast.Tuple: _display,
    ast.Set: _display,
    ast.Dict: _dict,
    ast.ListComp: _comprehension,
    ast.SetComp: _comprehension,
    ast.GeneratorExp: _comprehension,
    ast.DictComp: _comprehension,
}
