"""What an annotation says of a value: the project's classes and aliases, and torch's and typing's names."""

from __future__ import annotations

import ast

import msgspec

from dsv4prof.sync.code import semantics, values
from dsv4prof.sync.code.facts import ANNOTATED, Module
from dsv4prof.sync.code.gather import dotted
from dsv4prof.sync.code.project import Project
from dsv4prof.sync.code.values import ANYTHING, Value

_NOTHING_SAID = frozenset({"typing.Any", "Any", "object", "typing.TypeVar", "typing.Self"})
_LISTS = frozenset(
    [
        "list",
        "List",
        "Sequence",
        "Iterable",
        "Iterator",
        "Collection",
        "set",
        "Set",
        "frozenset",
        "FrozenSet",
        "deque",
        "Deque",
        "Generator",
        "MutableSequence",
        "AbstractSet",
    ]
)
_DICTS = frozenset(["dict", "Dict", "Mapping", "MutableMapping", "DefaultDict", "defaultdict", "OrderedDict"])
_PASSED = frozenset(
    ["Final", "ClassVar", "Annotated", "Required", "NotRequired", "ReadOnly", "Awaitable", "Coroutine", "InitVar"]
)
_HOST_BASES = frozenset(
    [
        "Enum",
        "IntEnum",
        "StrEnum",
        "IntFlag",
        "Flag",
        "str",
        "int",
        "float",
        "bool",
        "bytes",
        "Exception",
        "BaseException",
    ]
)


class Annotations:
    """Annotations of one project, each text read once a module."""

    def __init__(self, project: Project, conventions: semantics.Conventions) -> None:
        self.project = project
        self.conventions = conventions
        self._parsed: dict[str, ast.expr | None] = {}
        self._known: dict[tuple[str, str, str], Value] = {}
        self._by_module: dict[str, semantics.Conventions] = {}

    def value(self, text: str, module: Module, name: str) -> Value:
        """What `name: text` is in `module`; ANYTHING where the annotation says nothing."""
        key = (module.name, text, name)
        known = self._known.get(key)
        if known is None:
            self._known[key] = ANYTHING  # an alias of itself
            known = self._known[key] = self._read(self._parse(text), module, name, 6)
        return known

    def _conventions(self, module: Module) -> semantics.Conventions:
        """With the names that the module itself declares to stay on the host, also without their first word."""
        if not module.mirrors:
            return self.conventions
        known = self._by_module.get(module.name)
        if known is None:
            short = [name.partition("_")[2] for name in module.mirrors if "_" in name]
            names = (*module.mirrors, *short, *(f"{name}s" for name in short))
            known = semantics.Conventions(mirrors=(*self.conventions.mirrors, *names))
            self._by_module[module.name] = known
        return known

    def _parse(self, text: str) -> ast.expr | None:
        if text not in self._parsed:
            try:
                self._parsed[text] = ast.parse(text.strip().replace("\n", " "), mode="eval").body
            except (SyntaxError, ValueError, RecursionError):
                self._parsed[text] = None
        return self._parsed[text]

    def _read(self, node: ast.expr | None, module: Module, name: str, depth: int) -> Value:
        if node is None or depth == 0:
            return ANYTHING
        if isinstance(node, ast.Constant):
            if isinstance(node.value, str):
                return self._read(self._parse(node.value), module, name, depth - 1)
            return values.constant(None) if node.value is None else ANYTHING
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
            return self._union([node.left, node.right], module, name, depth)
        if isinstance(node, ast.Subscript):
            return self._generic(node, module, name, depth)
        written = dotted(node)
        return self._named(written, module, name, depth) if written else ANYTHING

    def _generic(self, node: ast.Subscript, module: Module, name: str, depth: int) -> Value:
        last = dotted(node.value).rpartition(".")[2]
        inner = list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]
        if last == "Optional":
            return self._union([inner[0], ast.Constant(None)], module, name, depth)
        if last == "Union":
            return self._union(inner, module, name, depth)
        if last == "Literal":
            return values.HOST_NUMBER
        if last in _PASSED:
            return self._read(inner[0], module, name, depth - 1)
        if last in _LISTS and inner:
            return values.sequence_of(
                self._read(inner[0], module, name, depth - 1), "set" if last.lower().endswith("set") else "list"
            )
        if last in _DICTS:
            return values.mapping_of(self._read(inner[-1], module, name, depth - 1))
        if last in ("tuple", "Tuple"):
            if len(inner) == 2 and isinstance(inner[1], ast.Constant) and inner[1].value is ...:
                return values.sequence_of(self._read(inner[0], module, name, depth - 1), "tuple")
            return values.sequence(tuple(self._read(part, module, name, depth - 1) for part in inner))
        if last in ("type", "Type", "Callable"):
            return Value(kinds=values.CALLABLE)
        return self._named(dotted(node.value), module, name, depth)

    def _union(self, parts: list[ast.expr], module: Module, name: str, depth: int) -> Value:
        read = [self._read(part, module, name, depth - 1) for part in parts]
        joined = values.join_all(read)
        alone = [value for value in read if value.kinds != values.NONE]
        if len(alone) > 1 and joined.kinds & values.TENSOR and joined.kinds & ~(values.TENSOR | values.NONE):
            # Union[int, Tensor]: the tensor is there at times, and nothing says when.
            return msgspec.structs.replace(joined, strength=values.POSSIBLE)
        return joined

    def _named(self, written: str, module: Module, name: str, depth: int) -> Value:
        ref = self.project.local(module, written) or written
        if ":" not in ref:
            if ref in _NOTHING_SAID:
                return ANYTHING
            return semantics.from_annotation(ref.removeprefix("builtins."), name, self._conventions(module)) or ANYTHING
        if self.project.class_(ref) is not None:
            return self.instance(ref, name)
        home = self.project.module_of(ref)
        for variable in self.project.variable(ref):
            if variable.how == ANNOTATED:
                # `Alias: TypeAlias = ...` keeps its right side in no fact: nothing is known.
                return ANYTHING
            if variable.text:
                return self._read(self._parse(variable.text), home, name, depth - 1)
        return ANYTHING

    def instance(self, ref: str, name: str = "") -> Value:
        """An object of a project class: of an enum a host value, of a torch subclass what torch's own is."""
        for base in self.project.ancestry(ref)[1:]:
            if ":" in base:
                continue
            last = base.rpartition(".")[2]
            if last in _HOST_BASES:
                return values.HOST_NUMBER
            if base in ("torch.Tensor", "torch.nn.Parameter", "torch.nn.parameter.Parameter"):
                return semantics.from_annotation(base, name, self.conventions) or ANYTHING
        return Value(kinds=values.OBJECT, ref=ref, strength=values.LIKELY)
