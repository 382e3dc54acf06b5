"""A value of which a test told more."""

from __future__ import annotations

import ast

from msgspec.structs import replace

from dsv4prof.sync.code import semantics, values
from dsv4prof.sync.code.interpreter.environments import Environment
from dsv4prof.sync.code.interpreter.run import Run
from dsv4prof.sync.code.values import (
    CERTAIN,
    HOST,
    LIKELY,
    NONE,
    NOTHING,
    OBJECT,
    PAGEABLE,
    POSSIBLE,
    TENSOR,
    UNKNOWN,
    Value,
    Why,
)


def narrowed(run: Run, value: Value, kinds: int, ref: str, name: str) -> Value:
    """The value once it is known to be one of `kinds` (an OBJECT: of the class `ref`)."""
    kept = value.kinds & kinds
    if kinds == TENSOR and (not kept or value.strength == POSSIBLE):
        told = semantics.from_annotation("torch.Tensor", name, run.world.conventions)
        if told is not None and not kept and told.may_be_on_device:
            # Of a list that is tested all the same, or of anything: that it is a tensor does not say where it lives.
            return replace(told, strength=POSSIBLE, params=value.params)
        if told is not None and not (kept and value.places and not value.may_be_on_device):
            return replace(told, params=value.params)
    if kept == value.kinds:
        return value
    if not kept:
        kept = kinds
    if kept == HOST:
        return replace(values.HOST_NUMBER, params=value.params)
    if kept == OBJECT and not value.kinds & OBJECT:
        return Value(kinds=OBJECT, ref=ref, strength=LIKELY, params=value.params)
    return replace(
        value,
        kinds=kept,
        places=value.places if kept & (TENSOR | values.DEVICE) else 0,
        const=NOTHING,
        ref=ref if kept & OBJECT and ref else value.ref,
    )


def without(run: Run, value: Value, kinds: int, name: str) -> Value:
    """The value once it is known to be none of `kinds`."""
    kept = value.kinds & ~kinds
    if kept == value.kinds:
        return value
    if not kept:
        return Value(params=value.params)
    if kept == UNKNOWN:
        told = run.world.assumed(name) if not kinds & TENSOR else values.ANYTHING
        return replace(told, params=told.params | value.params)
    if not kept & TENSOR and value.kinds & TENSOR:
        return replace(value, kinds=kept, places=0, strength=LIKELY)
    return replace(value, kinds=kept, const=NOTHING if kinds & (HOST | NONE) else value.const)


def on_host(value: Value, text: str) -> Value:
    """The value once it is known to be host memory."""
    kinds = value.kinds & ~UNKNOWN if value.kinds & TENSOR else TENSOR
    places = value.places & values.HOST_PLACES or PAGEABLE
    return replace(value, kinds=kinds, places=places, strength=CERTAIN, why=Why(text))


def listed(node: ast.expr, env: Environment) -> None:
    """`torch.tensor(node)`: what is a tensor by its name alone is a list, or numbers: nobody copies a tensor so."""
    value = env.get(node.id) if isinstance(node, ast.Name) else None
    if value is None or value.kinds != TENSOR | UNKNOWN or value.strength != POSSIBLE:
        return
    assert isinstance(node, ast.Name)
    kept = values.sequence_of(replace(values.ANYTHING, params=value.params), same=f"{node.id}@{node.lineno}")
    env[node.id] = kept
