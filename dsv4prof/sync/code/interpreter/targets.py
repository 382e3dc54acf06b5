"""Assignment to names, attributes, elements and tuples of them."""

from __future__ import annotations

import ast

from msgspec.structs import replace

from dsv4prof.sync.code import semantics
from dsv4prof.sync.code.interpreter import reads, sameness
from dsv4prof.sync.code.interpreter.dispatch import chain_of, evaluate
from dsv4prof.sync.code.interpreter.environments import TEST, Environment, forget_paths
from dsv4prof.sync.code.interpreter.indexes import index_of
from dsv4prof.sync.code.interpreter.keyed import with_key
from dsv4prof.sync.code.interpreter.run import ELEMENTS, Run
from dsv4prof.sync.code.values import ANYTHING, MAPPING, POSSIBLE, SEQUENCE, UNKNOWN, Value, sequence_of

# How the story ends of a value of which nothing but the annotation of the function that gave it is known.
BY_ANNOTATION = " gives a tensor, by its annotation alone"


def assign(run: Run, target: ast.expr, value: Value, env: Environment, node: ast.AST) -> None:
    """`target = value`, which the statement or expression `node` does."""
    if target.__class__ is ast.Name:
        name(run, target.id, sameness.bound(run, value, target.id, target.lineno, env), env)
    elif isinstance(target, ast.Attribute):
        _attribute(run, target, value, env)
    elif isinstance(target, ast.Subscript):
        element(run, target, value, env, node, augmented=False)
    elif isinstance(target, ast.Tuple | ast.List):
        _several(run, target, value, env, node)
    elif isinstance(target, ast.Starred):
        assign(run, target.value, sequence_of(value), env, node)


def element_of(run: Run, target: ast.expr, value: Value) -> Value:
    """An element that a loop binds: of an annotated list of tensors nobody says where they are, but a name may."""
    why = value.why
    if not isinstance(target, ast.Name) or why is None or why.before is not None or not value.may_be_on_device:
        return value
    mirror = semantics.from_annotation("torch.Tensor", target.id, run.world.conventions)
    marked = mirror is not None and not mirror.may_be_on_device
    return replace(value, strength=POSSIBLE) if marked and ", annotated " in why.text else value


def name(run: Run, name: str, value: Value, env: Environment) -> None:
    """`name = value`; of a value of which nothing is known its name may tell."""
    if value.kinds == UNKNOWN:
        told = run.world.assumed(name)
        value = replace(told, params=told.params | value.params) if value.params else told
    why = value.why
    if why is not None and value.may_be_on_device and why.before is None and why.text.endswith(BY_ANNOTATION):
        # An annotation that says Tensor says nothing of its place; a name that says host does.
        mirror = semantics.from_annotation("torch.Tensor", name, run.world.conventions)
        value = mirror if mirror is not None and not mirror.may_be_on_device else value
    if name in run.heads:
        forget_paths(env, name)
    if run.tests:
        env.pop(TEST + name, None)
    env[name] = value
    if run.reads:
        reads.forget(env, (name,))


def _attribute(run: Run, target: ast.Attribute, value: Value, env: Environment) -> None:
    chain = chain_of(target)
    if not chain:
        evaluate(run, target.value, env)
        return
    if value.kinds == UNKNOWN:
        told = run.world.attribute_told(run, chain, target, env)
        value = told if told is not None else value
    value = sameness.bound(run, value, chain, target.lineno, env)
    run.epoch += 1
    forget_paths(env, chain)
    run.heads.add(chain.partition(".")[0])
    env[chain] = value
    if run.reads:
        reads.forget(env, (chain.partition(".")[0],))
    if isinstance(target.value, ast.Name) and target.value.id == run.receiver:
        run.store(target.attr, value)


def element(run: Run, target: ast.Subscript, value: Value, env: Environment, node: ast.AST, *, augmented: bool) -> None:
    """`target[index] = value`."""
    base = evaluate(run, target.value, env)
    index = index_of(run, target.slice, env)
    outcome = semantics.store_subscript(base, index, value, augmented)
    if outcome.effects:
        run.emit(node, outcome.effects, env)
    if base.same:
        # Its numbers are others now, wherever it is known.
        sameness.forget(base.same, env)
    run.epoch += 1
    if base.kinds & (MAPPING | SEQUENCE) and isinstance(target.value, ast.Attribute):
        owner = target.value.value
        if isinstance(owner, ast.Name) and owner.id == run.receiver:
            run.store(target.value.attr + ELEMENTS, value)
    if base.kinds == MAPPING:
        chain = chain_of(target.value)
        if chain:
            env[chain] = with_key(base, index, value)
            if "." in chain:
                run.heads.add(chain.partition(".")[0])
    if run.reads:
        reads.forget(env, (part.id for part in ast.walk(target.value) if isinstance(part, ast.Name)))


def _several(run: Run, target: ast.Tuple | ast.List, value: Value, env: Environment, node: ast.AST) -> None:
    count = len(target.elts)
    starred = [place for place, part in enumerate(target.elts) if isinstance(part, ast.Starred)]
    if starred:
        outcome = semantics.iterate(value)
        parts: tuple[Value, ...] = (outcome.value,) * count
        if value.items is not None and len(value.items) >= count - 1:
            after = count - 1 - starred[0]
            tail = value.items[len(value.items) - after :] if after else ()
            parts = (*value.items[: starred[0]], outcome.value, *tail)
    elif value.items is not None and len(value.items) == count:
        outcome = None
        parts = value.items
    else:
        outcome = semantics.unpack(value, count)
        items = outcome.value.items
        parts = items if items is not None and len(items) == count else (outcome.value.element or ANYTHING,) * count
    if outcome is not None and outcome.effects:
        run.emit(node, outcome.effects, env)
    for part, held in zip(target.elts, parts, strict=True):
        assign(run, part, run.stamped(held, node), env, node)
