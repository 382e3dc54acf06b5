"""What a run may ask about everything outside the function that it runs: globals, classes, other functions."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from msgspec.structs import replace

from dsv4prof.sync.code import gather, parameters, semantics, values
from dsv4prof.sync.code.annotations import Annotations
from dsv4prof.sync.code.attributes import Attributes, weakened
from dsv4prof.sync.code.effects import Args
from dsv4prof.sync.code.facts import Assignment, Function, Module
from dsv4prof.sync.code.interpreter import engine
from dsv4prof.sync.code.interpreter.environments import HOST_ONLY, Environment
from dsv4prof.sync.code.interpreter.run import Run, Site
from dsv4prof.sync.code.interpreter.sameness import anonymous
from dsv4prof.sync.code.interpreter.targets import BY_ANNOTATION
from dsv4prof.sync.code.memo import Memo
from dsv4prof.sync.code.method_names import COMMON
from dsv4prof.sync.code.project import Project
from dsv4prof.sync.code.sources import Sources
from dsv4prof.sync.code.values import (
    ANYTHING,
    CALLABLE,
    NONE,
    OBJECT,
    POSSIBLE,
    TENSOR,
    UNKNOWN,
    Value,
    Why,
    join_all,
    settled,
)

# How many definitions a question may pass through.
LEVELS = 2
# What so many methods give back is joined; a global that is assigned more often than this may be anything.
_METHODS = 4
_ASSIGNED = 7
# A class for CPUs, unless it speaks of memory on both sides.
_HOST_CLASS = re.compile(r"(CPU|Cpu)(?!.*(Off[lL]oad|Cache|Swap|GPU|Gpu|Cuda|Pinned|Copy|Transfer))[A-Z]")
# What prepares the inputs of models in the front end works on host tensors, unless it says otherwise.
_FRONT_END = re.compile(
    r"(MultiModalProcessor|ProcessingInfo|DummyInputsBuilder|(Image|Video|Audio)Processor|FeatureExtractor)$"
)
_KERNELS = ("triton.", "tilelang.", "cutlass.", "numba.cuda.", "cute.", "T.prim_func", "tl.")
# A function is run again for the arguments of a call when it is no longer than this.
_SMALL = 60


class Result(NamedTuple):
    """What one run gave: the value returned, what it assigned to its object's attributes, where it may wait, and what
    it gave to which functions of the project."""

    returned: Value
    stores: dict[str, Value]
    sites: tuple[Site, ...] = ()
    calls: Mapping[str, list[Args]] = MappingProxyType({})


_NO_RESULT = Result(ANYTHING, {})


class World:
    """One project, as the interpreter sees it."""

    def __init__(self, project: Project, sources: Sources, conventions: semantics.Conventions) -> None:
        self.project = project
        self.sources = sources
        self.conventions = conventions
        self.annotations = Annotations(project, conventions)
        self.attributes = Attributes(self)
        self.memo = Memo()
        self._assumed: dict[str, Value] = {}
        self._parameters: dict[str, Environment] = {}

    # Names

    def assumed(self, name: str) -> Value:
        """What a name alone suggests."""
        known = self._assumed.get(name)
        if known is None:
            known = self._assumed[name] = semantics.assumed(name, self.conventions)
        return known

    def global_value(self, module: Module, name: str, level: int) -> Value:
        """The value of a name that the function itself does not bind."""
        ref = self.project.local(module, name)
        if not ref:
            return Value(kinds=CALLABLE, ref=name) if hasattr(builtins, name) else self.assumed(name)
        return self.referred(ref, level)

    def referred(self, ref: str, level: int) -> Value:
        """The value that a reference means."""
        if ":" not in ref:
            return semantics.named(ref) or Value(kinds=CALLABLE, ref=ref)
        if ref.endswith(":") or self.project.function(ref) is not None or self.project.class_(ref) is not None:
            return Value(kinds=CALLABLE, ref=ref)
        assigned = self.project.variable(ref)
        if not assigned:
            return self.assumed(ref.rpartition(".")[2])
        name = ref.partition(":")[2]
        question = ("variable", ref)
        return self.memo.ask(
            question, level, lambda deeper: self._variable(ref, name, assigned, deeper), self.assumed(name)
        )

    def _variable(self, ref: str, name: str, assigned: list[Assignment], level: int) -> Value:
        module = self.project.module_of(ref)
        return (
            join_all([self.attributes.assigned(one, module, "", level) for one in assigned])
            if len(assigned) < 8
            else ANYTHING
        )

    def member(self, ref: str, name: str, level: int) -> Value:
        """`ref.name` where ref is a module or a class."""
        if self.project.class_(ref) is not None:
            method = self.project.find_method(ref, name)
            if method:
                return Value(kinds=CALLABLE, ref=method)
            if any(base.rpartition(".")[2] in ("Enum", "IntEnum", "StrEnum") for base in self.project.ancestry(ref)):
                return values.HOST_NUMBER
            if self.project.class_(f"{ref}.{name}") is not None:
                return Value(kinds=CALLABLE, ref=f"{ref}.{name}")
            return self.attribute(ref, name, level)
        if ref.startswith("local:"):
            return ANYTHING
        return self.referred(self.project.member(ref, name), level)

    def imported(self, module: Module, node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, Value]]:
        """What an import within a function binds."""
        for local, dotted in gather.imported(module.path, module.name, node):
            yield local, self.referred(self.project.resolve(dotted), LEVELS)

    def attribute(self, ref: str, name: str, level: int) -> Value:
        """`object.name` of an object of the class `ref`."""
        return self.attributes.of_class(ref, name, level)

    def unknown_attribute(self, name: str, level: int) -> Value:
        """`x.name` of an object of which nothing is known."""
        return self.attributes.of_any(name, level)

    # Functions

    def method(self, ref: str, name: str) -> str:
        """The reference of the method that a call means; of a call of the object itself also `forward`."""
        found = self.project.find_method(ref, name)
        if not found and name == "__call__":
            found = self.project.find_method(ref, "forward")
        return found

    def unknown_method(self, name: str, level: int) -> Value:
        """`x.name()` of an object of which nothing is known."""
        found = self.project.methods_named(name)
        if not found or len(found) > _METHODS or name in COMMON or name.startswith("__"):
            return ANYTHING
        return weakened(join_all([self.returns(ref, level) for ref in found]))

    def called(self, ref: str, args: Args, level: int) -> Value:
        """The value of calling what a reference means."""
        if self.project.class_(ref) is not None:
            return self.annotations.instance(ref)
        if self.project.function(ref) is None:
            return ANYTHING
        return self.returns(ref, level, args)

    def returns(self, ref: str, level: int, args: Args | None = None) -> Value:
        """What a function of the project gives back: its annotation where that settles it, else what its body says."""
        function = self.project.function(ref)
        if function is None:
            return ANYTHING
        module = self.project.module_of(ref)
        told = self.annotations.value(function.returns, module, function.name) if function.returns else ANYTHING
        if function.generator or (told is not ANYTHING and not _may_hold_tensor(told)):
            return told
        told = _by_annotation(told, function.name)
        if any(d.rpartition(".")[2] in ("contextmanager", "abstractmethod") for d in function.decorators):
            return told
        if not function.tensors and told is ANYTHING and function.end_line - function.line > _SMALL:
            return ANYTHING
        result = self.result(ref, level).returned
        if args is not None and _params(result) and function.end_line - function.line <= _SMALL:
            result = self._with_arguments(ref, function, args, level, result)
        return anonymous(settled(self._returned(function.name, told, result)))

    def _returned(self, name: str, told: Value, result: Value) -> Value:
        result = _without_params(result)
        if told.items is not None and result.items is not None and len(told.items) == len(result.items):
            pairs = zip(told.items, result.items, strict=True)
            return replace(result, items=tuple(self._returned(name, one, other) for one, other in pairs))
        certain = result.kinds & TENSOR and result.places and result.strength > POSSIBLE
        if told is ANYTHING:
            if result.kinds == NONE and not name.startswith(("set", "init")):
                return result
            return result
        if certain and not (told.kinds & TENSOR and not told.may_be_on_device and result.strength < values.CERTAIN):
            return result
        if result.kinds & TENSOR or told.kinds & TENSOR or result.kinds in (UNKNOWN, NONE):
            return told
        return result

    def _with_arguments(self, ref: str, function: Function, args: Args, level: int, general: Value) -> Value:
        bound = parameters.bind(function, args)
        hanging = _params(general)
        # Without the stories of one caller: the answer is the same for every caller that gives the same.
        useful = {name: _key(value) for name, value in bound.items() if name in hanging and value.kinds != UNKNOWN}
        if not useful:
            return general
        key = ("bound", ref, tuple(sorted(useful.items(), key=_first)))
        return self.memo.ask(key, level, lambda deeper: self._run(ref, deeper, useful).returned, general)

    def result(self, ref: str, level: int) -> Result:
        """One run of a function on what its parameters say."""
        return self.memo.ask(("run", ref), level, lambda deeper: self._run(ref, deeper, None), _NO_RESULT)

    def _run(self, ref: str, level: int, bound: dict[str, Value] | None) -> Result:
        run = self.start(ref, level, report=bound is None)
        returned = self.carry_out(run, ref, bound)
        return Result(returned, run.stores, tuple(run.sites.values()) if run.sites else (), run.calls)

    def start(self, ref: str, level: int, *, report: bool) -> Run:
        """A run of a function that has not begun."""
        module = self.project.module_of(ref)
        function = self.project.function(ref)
        assert function is not None
        owner = f"{module.name}:{function.owner}" if function.owner else ""
        return Run(self, module, function.qualname, owner, level, report=report)

    def carry_out(self, run: Run, ref: str, bound: dict[str, Value] | None = None) -> Value:
        """Runs it; the value that it returns."""
        function = self.project.function(ref)
        assert function is not None
        node = self.sources.function(run.module, function)
        if node is None:
            return ANYTHING
        env = dict(self.parameters(ref, function))
        if _HOST_CLASS.match(function.owner.rpartition(".")[2]):
            env[HOST_ONLY] = True
        elif run.owner and any(_FRONT_END.search(step) for step in self.project.ancestry(run.owner)):
            env[HOST_ONLY] = "unless it is certain"
        if bound:
            env.update(bound)
        return engine.function(run, node, env)

    def parameters(self, ref: str, function: Function) -> Environment:
        """What the parameters are, by annotation, default and name."""
        known = self._parameters.get(ref)
        if known is None:
            known = self._parameters[ref] = parameters.read(self, self.project.module_of(ref), function)
        return known

    def handles_tensors(self, ref: str) -> bool:
        """Whether a function of the project is run for what it does."""
        function = self.project.function(ref)
        return function is not None and function.waits

    def is_kernel(self, module: Module, decorators: Iterable[str]) -> bool:
        """Whether a decorator makes it code of the device: the host never runs its statements."""
        return any((self.project.local(module, name) or name).startswith(_KERNELS) for name in decorators)

    def entered(self, value: Value, level: int) -> Value:
        """What `with value as x` binds."""
        return value if value.kinds & OBJECT else ANYTHING

    def attribute_told(self, run: Run, chain: str, target: ast.Attribute, env: Environment) -> Value | None:
        """What is known of an attribute to which something unknown was assigned."""
        from dsv4prof.sync.code.interpreter import dispatch, expressions

        base = dispatch.quietly(run, target.value, env)
        return expressions.attribute_of(run, base, target.attr)


def _by_annotation(told: Value, name: str) -> Value:
    """The annotation of what comes back, marked as the only evidence there is."""
    if told.kinds & TENSOR and told.may_be_on_device:
        return replace(told, why=Why(f"{name}(){BY_ANNOTATION}"))
    if told.items:
        return replace(told, items=tuple(_by_annotation(item, name) for item in told.items))
    return told


def _params(value: Value) -> frozenset[str]:
    """The parameters that a value, or anything in it, hangs on."""
    if value.items:
        return value.params.union(*(_params(item) for item in value.items))
    return value.params | value.element.params if value.element is not None else value.params


def _without_params(value: Value) -> Value:
    """The value in another function, where the names of these parameters mean nothing."""
    if value.params:
        value = replace(value, params=values.NO_PARAMS)
    if value.items and any(_params(item) for item in value.items):
        value = replace(value, items=tuple(_without_params(item) for item in value.items))
    if value.element is not None and value.element.params:
        value = replace(value, element=_without_params(value.element))
    return value


def _may_hold_tensor(value: Value, depth: int = 4) -> bool:
    if value.kinds & (TENSOR | UNKNOWN):
        return True
    inner = value.items or ((value.element,) if value.element is not None else ())
    return depth > 0 and any(_may_hold_tensor(item, depth - 1) for item in inner)


def _first(pair: tuple[str, Value]) -> str:
    return pair[0]


def _key(value: Value) -> Value:
    """The value without the story of how it came to be, so that equal arguments are one question."""
    return replace(value, why=None, params=values.NO_PARAMS, same="", total="")
