"""Names for numbers: two values with one name hold the same numbers, so that a total can be told to be exact.

A name is the path that was bound and where: `lens@12`. Bound again, also by the next turn of a loop, the same name
means other numbers; what bore it before loses it.
"""

from __future__ import annotations

from msgspec.structs import replace

from dsv4prof.sync.code.interpreter.environments import Environment
from dsv4prof.sync.code.interpreter.run import Run
from dsv4prof.sync.code.values import ARRAY, HOST, SEQUENCE, TENSOR, Value

_NUMBERS = SEQUENCE | ARRAY | TENSOR


def named(value: Value, name: str) -> Value:
    """The value under a name of its own, unless it holds numbers that have one."""
    if value.kinds & _NUMBERS and not value.same and not value.kinds & HOST:
        return replace(value, same=name)
    return value


def bound(run: Run, value: Value, path: str, line: int, env: Environment) -> Value:
    """The value as `path = value` on a line leaves it."""
    if not value.kinds & _NUMBERS or value.same or value.kinds & HOST:
        return value
    name = f"{path}@{line}"
    if name in run.minted:
        forget(name, env)
    run.minted.add(name)
    return replace(value, same=name)


def forget(name: str, env: Environment) -> None:
    """Nothing bears this name any longer."""
    for key, value in env.items():
        if value.__class__ is Value and (value.same == name or value.total.endswith(name)):
            env[key] = anonymous(value)


def anonymous(value: Value) -> Value:
    """The value without names of numbers: those of one function mean nothing in another."""
    if value.same or value.total:
        value = replace(value, same="", total="")
    if value.items and any(item.same or item.total for item in value.items):
        value = replace(value, items=tuple(anonymous(item) for item in value.items))
    return value


def exact_total(env: Environment, counts: Value) -> str:
    """A host expression, valid here, that is the sum of `counts`; "" when none is proven."""
    if not counts.same:
        return ""
    plain = [(key, value) for key, value in env.items() if key.isidentifier() and value.__class__ is Value]
    for key, value in plain:
        if value.total == counts.same and value.kinds == HOST:
            return key
    for key, value in plain:
        if value.same == counts.same and value.kinds == SEQUENCE:
            return f"sum({key})"
    return ""
