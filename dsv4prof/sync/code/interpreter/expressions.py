"""Names, attributes, subscripts and operators: the value of each, and what evaluating it does to the host."""

from __future__ import annotations

import ast

from msgspec.structs import replace

from dsv4prof.sync.code import semantics
from dsv4prof.sync.code.interpreter import guards, reads, sameness, targets
from dsv4prof.sync.code.interpreter.dispatch import Table, chain_of, evaluate
from dsv4prof.sync.code.interpreter.environments import Environment
from dsv4prof.sync.code.interpreter.indexes import index_of
from dsv4prof.sync.code.interpreter.keyed import of_key
from dsv4prof.sync.code.interpreter.run import Run
from dsv4prof.sync.code.values import (
    ANYTHING,
    ARRAY,
    CALLABLE,
    CERTAIN,
    HOST,
    HOST_NUMBER,
    LIKELY,
    NONE,
    OBJECT,
    POSSIBLE,
    SEQUENCE,
    TENSOR,
    UNKNOWN,
    Value,
    constant,
)

_OPERATORS = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.MatMult: "@",
    ast.Div: "/",
    ast.Mod: "%",
    ast.Pow: "**",
    ast.LShift: "<<",
    ast.RShift: ">>",
    ast.BitOr: "|",
    ast.BitXor: "^",
    ast.BitAnd: "&",
    ast.FloorDiv: "//",
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Is: "is",
    ast.IsNot: "is not",
    ast.In: "in",
    ast.NotIn: "not in",
    ast.UAdd: "+",
    ast.USub: "-",
    ast.Invert: "~",
    ast.Not: "not",
}


def operator(node: ast.AST) -> str:
    """The operator as written."""
    return _OPERATORS[node.__class__]


def _constant(run: Run, node: ast.Constant, env: Environment) -> Value:
    known: Value | None = getattr(node, "known", None)
    if known is None:
        known = node.known = constant(node.value)  # type: ignore[attr-defined]
    return known


def _name(run: Run, node: ast.Name, env: Environment) -> Value:
    value = env.get(node.id)
    if value is not None:
        return _surer(run, node.id, value) if run.proven else value
    value = run.globals.get(node.id)
    if value is None:
        value = run.globals[node.id] = run.world.global_value(run.module, node.id, run.level)
    return value


def _attribute(run: Run, node: ast.Attribute, env: Environment) -> Value:
    chain = chain_of(node) if run.heads or run.proven else ""
    if chain:
        known = env.get(chain)
        if known is not None:
            return _surer(run, chain, known) if run.proven else known
    base = evaluate(run, node.value, env)
    value = run.stamped(attribute_of(run, base, node.attr), node)
    if value.kinds & (SEQUENCE | ARRAY) and not value.same:
        path = chain_of(node)
        # Until somebody is called who may change it, every read of the path gives the same numbers.
        value = sameness.named(value, f"{path}@after {run.epoch}") if path else value
    return _surer(run, chain, value) if run.proven else value


def _surer(run: Run, chain: str, value: Value) -> Value:
    """A guess by the name alone, where other lines show that it is a tensor indeed."""
    if value.kinds & TENSOR and value.strength == POSSIBLE and chain in run.proven:
        return replace(value, kinds=value.kinds & ~UNKNOWN, strength=LIKELY)
    return value


def attribute_of(run: Run, base: Value, name: str) -> Value:
    """`base.name`."""
    kinds = base.kinds
    if kinds & CALLABLE and base.ref:
        return run.world.member(base.ref, name, run.level)
    if kinds & OBJECT and ":" in base.ref:
        return run.world.attribute(base.ref, name, run.level)
    if kinds & ~(UNKNOWN | NONE):
        known = semantics.attribute(base, name)
        if known is not None:
            return known
    value = run.world.unknown_attribute(name, run.level)
    return replace(value, params=value.params | base.params) if base.params else value


def _subscript(run: Run, node: ast.Subscript, env: Environment) -> Value:
    base = evaluate(run, node.value, env)
    index = index_of(run, node.slice, env)
    if base.kinds & CALLABLE:
        return base
    if base.kinds & OBJECT and ":" in base.ref:
        method = run.world.project.find_method(base.ref, "__getitem__")
        if method:
            return run.world.returns(method, run.level)
    held = of_key(base, index)
    if held is not None:
        return held
    outcome = semantics.subscript(base, index)
    if isinstance(index.const, str):
        return _of_name(run, index.const, run.stamped(outcome.value, node))
    if outcome.effects:
        reads.emit(run, node, node.value, outcome.effects, env)
    return run.stamped(outcome.value, node)


def _of_name(run: Run, name: str, value: Value) -> Value:
    """`x["name"]`: as of an attribute of that name, a host mark in it counts where nothing certain says otherwise."""
    told = run.world.assumed(name)
    marked = told.kinds & (TENSOR | ARRAY) and not told.may_be_on_device
    guessed = value.kinds & UNKNOWN or (value.may_be_on_device and value.strength < CERTAIN)
    return told if marked and guessed else value


def _binary(run: Run, node: ast.BinOp, env: Environment) -> Value:
    left = evaluate(run, node.left, env)
    right = evaluate(run, node.right, env)
    return binary(run, node, operator(node.op), left, right, env)


def binary(run: Run, node: ast.AST, sign: str, left: Value, right: Value, env: Environment) -> Value:
    """`left sign right`."""
    if left.kinds == UNKNOWN and right.kinds == UNKNOWN:
        return ANYTHING if not (left.params or right.params) else replace(left, params=left.params | right.params)
    outcome = semantics.binary(sign, left, right)
    if outcome.effects:
        run.emit(node, outcome.effects, env)
    return run.stamped(outcome.value, node)


def _unary(run: Run, node: ast.UnaryOp, env: Environment) -> Value:
    if isinstance(node.op, ast.Not):
        guards.branch(run, node.operand, env, "not")
        return HOST_NUMBER
    value = evaluate(run, node.operand, env)
    if isinstance(node.op, ast.USub) and value.const.__class__ in (int, float):
        return constant(-value.const)
    outcome = semantics.unary(operator(node.op), value)
    if outcome.effects:
        run.emit(node, outcome.effects, env)
    return run.stamped(outcome.value, node)


def _compare(run: Run, node: ast.Compare, env: Environment) -> Value:
    left = evaluate(run, node.left, env)
    result = HOST_NUMBER
    last = len(node.ops) - 1
    for place, (sign, comparator) in enumerate(zip(node.ops, node.comparators, strict=True)):
        right = evaluate(run, comparator, env)
        outcome = semantics.compare(operator(sign), left, right)
        if outcome.effects:
            run.emit(node, outcome.effects, env)
        result = outcome.value
        if place < last:
            run.emit(node, semantics.truth(result, "and-or"), env)
        left = right
    return run.stamped(result, node)


def _formatted(run: Run, node: ast.JoinedStr, env: Environment) -> Value:
    outer, run.anchor = run.anchor, run.anchor or node
    for part in node.values:
        if isinstance(part, ast.FormattedValue):
            value = evaluate(run, part.value, env)
            effects = semantics.format_value(value)
            if effects:
                run.emit(part.value, effects, env)
    run.anchor = outer
    return Value(kinds=HOST)


def _formatted_value(run: Run, node: ast.FormattedValue, env: Environment) -> Value:
    evaluate(run, node.value, env)
    return Value(kinds=HOST)


def _walrus(run: Run, node: ast.NamedExpr, env: Environment) -> Value:
    value = evaluate(run, node.value, env)
    targets.assign(run, node.target, value, env, node)
    return value


def _inner(run: Run, node: ast.Await | ast.Starred, env: Environment) -> Value:
    return evaluate(run, node.value, env)


def _yield(run: Run, node: ast.Yield | ast.YieldFrom, env: Environment) -> Value:
    if node.value is not None:
        evaluate(run, node.value, env)
    return ANYTHING


def _slice(run: Run, node: ast.Slice, env: Environment) -> Value:
    return index_of(run, node, env)


TABLE: Table = {
    ast.Constant: _constant,
    ast.Name: _name,
    ast.Attribute: _attribute,
    ast.Subscript: _subscript,
    ast.BinOp: _binary,
    ast.UnaryOp: _unary,
    ast.Compare: _compare,
    ast.JoinedStr: _formatted,
    ast.FormattedValue: _formatted_value,
    ast.NamedExpr: _walrus,
    ast.Await: _inner,
    ast.Starred: _inner,
    ast.Yield: _yield,
    ast.YieldFrom: _yield,
    ast.Slice: _slice,
}
