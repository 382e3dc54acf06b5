"""What the callers of a function give it: asked only where a verdict hangs on a parameter."""

from __future__ import annotations

from msgspec.structs import replace

from dsv4prof.sync.code import values
from dsv4prof.sync.code.effects import Args
from dsv4prof.sync.code.facts import Parameter
from dsv4prof.sync.code.interpreter.sameness import anonymous, named
from dsv4prof.sync.code.parameters import bind
from dsv4prof.sync.code.values import ANYTHING, HOST, LIKELY, NONE, POSSIBLE, TENSOR, UNKNOWN, Value, join_all, settled
from dsv4prof.sync.code.world import World

# With more callers than this nobody reads them all, and neither do we.
_MOST = 12
_FEW = 4


class Callers:
    """The call sites of one project by the name that is called."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._by_name: dict[str, list[str]] | None = None

    def facts(self, ref: str, wanted: frozenset[str], level: int, *, cheaply: bool = False) -> dict[str, Value]:
        """What is known of the parameters `wanted` once every call site was looked at; those of which it is more.

        `cheaply`: only of callers that are run in any case, and only of a few.
        """
        function = self._world.project.function(ref)
        if function is None or not wanted:
            return {}
        callers = self._callers(function.name)
        if not callers or len(callers) > (_FEW if cheaply else _MOST):
            return {}
        if cheaply and not all(self._world.handles_tensors(caller) for caller in callers):
            return {}
        calls: list[dict[str, Value]] = []
        complete = True
        for caller in callers:
            made = self._arguments(caller, ref, level)
            complete = complete and bool(made)
            calls.extend(bind(function, args) for args in made if not args.open)
            complete = complete and not any(args.open for args in made)
        if not calls:
            return {}
        current = self._world.parameters(ref, function)
        found: dict[str, Value] = {}
        for parameter in function.parameters:
            if parameter.name not in wanted or parameter.kind in ("*", "**"):
                continue
            given = [call.get(parameter.name) or _default(parameter) for call in calls]
            told = _told(current[parameter.name], given, complete)
            if told is not None:
                found[parameter.name] = named(told, f"{parameter.name}@0")
        return found

    def _callers(self, name: str) -> list[str]:
        if self._by_name is None:
            self._by_name = {}
            for module, names in self._world.project.names.items():
                for function in names.functions.values():
                    for called in {called.rpartition(".")[2] for called in function.calls}:
                        self._by_name.setdefault(called, []).append(f"{module}:{function.qualname}")
        return self._by_name.get(name, [])

    def _arguments(self, caller: str, ref: str, level: int) -> list[Args]:
        return self._world.result(caller, level).calls.get(ref, [])


def _default(parameter: Parameter) -> Value:
    if parameter.default == "None":
        return values.constant(None)
    if parameter.default in ("", "..."):
        return ANYTHING
    return Value(kinds=HOST, strength=LIKELY)


def _told(current: Value, given: list[Value], complete: bool) -> Value | None:
    """The parameter's value by its call sites, None where they say no more than is known."""
    known = [anonymous(settled(value)) for value in given if value.kinds & ~UNKNOWN]
    if not known:
        return None
    joined = join_all(known)
    whole = complete and len(known) == len(given)
    params = current.params
    if whole:
        if current.kinds & TENSOR and not joined.kinds & TENSOR and not joined.kinds & ~NONE:
            return None
        return replace(joined, params=values.NO_PARAMS)
    if joined.may_be_on_device and joined.strength > POSSIBLE and current.strength == POSSIBLE:
        return replace(joined, params=params)
    if current.kinds == UNKNOWN or (current.strength == POSSIBLE and joined.kinds & TENSOR):
        return replace(joined, kinds=joined.kinds | UNKNOWN, params=params)
    return None
