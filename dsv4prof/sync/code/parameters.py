"""The parameters of a function: what is known of them before anybody looks at a call."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from dsv4prof.sync.code import values
from dsv4prof.sync.code.effects import Args
from dsv4prof.sync.code.facts import Function, Module, Parameter
from dsv4prof.sync.code.interpreter.environments import Environment
from dsv4prof.sync.code.interpreter.sameness import named
from dsv4prof.sync.code.values import ANYTHING, CALLABLE, HOST, LIKELY, NONE, OBJECT, UNKNOWN, Value

if TYPE_CHECKING:
    from dsv4prof.sync.code.world import World


def read(world: World, module: Module, function: Function) -> Environment:
    """What the parameters of a function are, by annotation, default and name."""
    env: Environment = {}
    static = any(d.rpartition(".")[2] == "staticmethod" for d in function.decorators)
    for place, parameter in enumerate(function.parameters):
        if function.owner and place == 0 and not static and not parameter.annotation:
            made = f"{module.name}:{function.owner}"
            of_class = any(d.rpartition(".")[2] == "classmethod" for d in function.decorators)
            env[parameter.name] = (
                Value(kinds=CALLABLE, ref=made) if of_class else Value(kinds=OBJECT, ref=made, strength=LIKELY)
            )
            continue
        env[parameter.name] = named(
            values.declared(_parameter(world, parameter, module), function.line, module.path), f"{parameter.name}@0"
        )
    return env


def _parameter(world: World, parameter: Parameter, module: Module) -> Value:
    name = parameter.name
    told = world.annotations.value(parameter.annotation, module, name) if parameter.annotation else ANYTHING
    if parameter.kind == "*":
        return values.sequence_of(told, "tuple")
    if parameter.kind == "**":
        return Value(kinds=values.MAPPING)
    default = parameter.default
    if told is ANYTHING:
        told = world.assumed(name)
        if told.kinds == UNKNOWN and default not in ("", "None", "..."):
            told = Value(kinds=HOST, strength=LIKELY)
    if default == "None":
        told = replace(told, kinds=told.kinds | NONE)
    return replace(told, params=frozenset({name}))


def bind(function: Function, args: Args) -> dict[str, Value]:
    """The arguments of a call by parameter name; a bound method's receiver is not among them."""
    parameters = [p for p in function.parameters if p.kind == ""]
    if function.owner and parameters and not any(d.rpartition(".")[2] == "staticmethod" for d in function.decorators):
        parameters = parameters[1:]
    bound = {p.name: value for p, value in zip(parameters, args.positional, strict=False)}
    names = {p.name for p in function.parameters}
    bound.update({name: value for name, value in args.keywords.items() if name in names})
    return bound
