"""All modules of a project by name: which definition a dotted name means, and who derives from whom.

A reference is a string: `layers.attention:Backend.forward` for what the project defines, `torch.cumsum` for the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from dsv4prof.sync.code.facts import ELEMENT, Assignment, Class, Function, Module

_HOPS = 12


class Names:
    """What a module defines at its top, and the members of its classes, by qualified name."""

    __slots__ = ("classes", "functions", "module", "others", "variables")

    def __init__(self, module: Module) -> None:
        self.module = module
        self.functions: dict[str, Function] = {}
        # Definitions of a name that has another one: of an if/else the second, of a property the setter.
        self.others: dict[str, Function] = {}
        for function in module.functions:
            held = self.functions.get(function.qualname)
            if held is None:
                self.functions[function.qualname] = function
                continue
            # Of overloads the last one counts, else the first.
            if "overload" in " ".join(held.decorators):
                self.functions[function.qualname], function = function, held
            self.others[f"{function.qualname}@{function.line}"] = function
        self.classes: dict[str, Class] = {made.qualname: made for made in module.classes}
        self.variables: dict[str, list[Assignment]] = {}
        for variable in module.variables:
            self.variables.setdefault(variable.name, []).append(variable)


class Project:
    """`modules` in any order; `root` gives the names of the folders above, which absolute imports may start with."""

    def __init__(self, root: Path, modules: Iterable[Module]) -> None:
        self.names: dict[str, Names] = {module.name: Names(module) for module in sorted(modules, key=_by_path)}
        above = [part for part in (root if root.is_dir() else root.parent).resolve().parts if part.isidentifier()]
        self._above = [".".join(above[-count:]) + "." for count in range(1, min(len(above), 6) + 1)]
        self._tops = {name.partition(".")[0] for name in self.names}
        packages = {names.module.name for names in self.names.values() if names.module.path.endswith("__init__.py")}
        # `src/pkg`: folders that are no packages and hold one, by the name of what they hold.
        self._inner: dict[str, list[str]] = {}
        for package in sorted(packages):
            folder, _, last = package.rpartition(".")
            if folder and folder not in packages:
                self._inner.setdefault(last, []).append(folder)
        self._resolved: dict[str, str] = {}
        self._attributes: dict[str, list[str]] | None = None
        self._methods: dict[str, list[str]] | None = None
        self._children: dict[str, list[str]] | None = None
        self._ancestry: dict[str, tuple[str, ...]] = {}

    def resolve(self, dotted: str) -> str:
        """The reference that an absolute dotted name means; the name itself when it is not the project's."""
        found = self._resolved.get(dotted)
        if found is None:
            found = self._resolved[dotted] = self._resolve(dotted, _HOPS)
        return found

    def local(self, module: Module, name: str) -> str:
        """The reference of a dotted name as written in `module`, "" when its head is unknown there."""
        head, _, rest = name.partition(".")
        base = self._top(self.names[module.name], head, _HOPS)
        if not base:
            return ""
        return self.member(base, rest) if rest else base

    def member(self, ref: str, rest: str) -> str:
        """`ref.rest`."""
        return self._member(ref, rest, _HOPS)

    def _member(self, ref: str, rest: str, hops: int) -> str:
        if ":" not in ref:
            return self._resolve(f"{ref}.{rest}", hops) if hops > 0 else f"{ref}.{rest}"
        module, _, qualname = ref.partition(":")
        return self._within(module, f"{qualname}.{rest}" if qualname else rest, hops)

    def function(self, ref: str) -> Function | None:
        """The function that a reference means."""
        module, _, qualname = ref.partition(":")
        names = self.names.get(module) if qualname else None
        return (names.functions.get(qualname) or names.others.get(qualname)) if names else None

    def ref(self, module: Module, function: Function) -> str:
        """The reference of one definition, also where its name has several."""
        names = self.names[module.name]
        alone = names.functions.get(function.qualname) is function
        return f"{module.name}:{function.qualname}" + ("" if alone else f"@{function.line}")

    def class_(self, ref: str) -> Class | None:
        """The class that a reference means."""
        module, _, qualname = ref.partition(":")
        names = self.names.get(module) if qualname else None
        return names.classes.get(qualname) if names else None

    def variable(self, ref: str) -> list[Assignment]:
        """The assignments of the global that a reference means."""
        module, _, qualname = ref.partition(":")
        names = self.names.get(module) if qualname else None
        return names.variables.get(qualname, []) if names else []

    def module_of(self, ref: str) -> Module:
        """The module of a reference into the project."""
        return self.names[ref.partition(":")[0]].module

    def bases(self, ref: str) -> list[str]:
        """References of the direct bases of a class, external ones included."""
        made = self.class_(ref)
        if made is None:
            return []
        module = self.module_of(ref)
        return [self.local(module, base) or base for base in made.bases]

    def ancestry(self, ref: str) -> tuple[str, ...]:
        """The class and its bases, nearest first, external ones included."""
        known = self._ancestry.get(ref)
        if known is None:
            order: dict[str, None] = {}
            stack = [ref]
            while stack and len(order) < 60:
                step = stack.pop()
                if step in order:
                    continue
                order[step] = None
                stack.extend(reversed(self.bases(step)))
            known = self._ancestry[ref] = tuple(order)
        return known

    def find_method(self, ref: str, name: str) -> str:
        """The reference of the method that `ref().name` means, "" when the project defines none."""
        for step in self.ancestry(ref):
            module, _, qualname = step.partition(":")
            names = self.names.get(module) if qualname else None
            if names is not None and f"{qualname}.{name}" in names.functions:
                return f"{module}:{qualname}.{name}"
        return ""

    def subclasses(self, ref: str) -> list[str]:
        """References of the direct subclasses."""
        if self._children is None:
            self._children = {}
            for made in self.all_classes():
                for base in self.bases(made):
                    self._children.setdefault(base, []).append(made)
        return self._children.get(ref, [])

    def all_classes(self) -> Iterator[str]:
        """References of all classes."""
        for name, names in self.names.items():
            for qualname in names.classes:
                yield f"{name}:{qualname}"

    def holders(self, attribute: str) -> list[str]:
        """References of the classes whose body or methods assign the attribute, or have a property of that name."""
        if self._attributes is None:
            self._attributes = {}
            for ref in self.all_classes():
                made = self.class_(ref)
                assert made is not None
                for name in {a.name: None for a in (*made.fields, *made.attributes) if a.how != ELEMENT}:
                    self._attributes.setdefault(name, []).append(ref)
            for module, names in self.names.items():
                for function in names.functions.values():
                    if function.owner and _is_property(function):
                        self._attributes.setdefault(function.name, []).append(f"{module}:{function.owner}")
        return self._attributes.get(attribute, [])

    def methods_named(self, name: str) -> list[str]:
        """References of all methods of that name."""
        if self._methods is None:
            self._methods = {}
            for module, names in self.names.items():
                for function in names.functions.values():
                    if function.owner:
                        self._methods.setdefault(function.name, []).append(f"{module}:{function.qualname}")
        return self._methods.get(name, [])

    def _top(self, names: Names, head: str, hops: int) -> str:
        module = names.module
        if head in names.functions or head in names.classes:
            return f"{module.name}:{head}"
        imported = module.imports.get(head)
        if imported is not None:
            return self._resolve(imported, hops - 1) if hops > 0 else imported
        if head in names.variables:
            return f"{module.name}:{head}"
        for star in module.stars if hops > 0 else ():
            target = self._module(star)
            if target is not None and not target[1]:
                found = self._top(self.names[target[0]], head, hops - 1)
                if found:
                    return found
        return ""

    def _resolve(self, dotted: str, hops: int) -> str:
        target = self._module(dotted)
        if target is None:
            return dotted
        return self._within(target[0], target[1], hops) or dotted

    def _within(self, module: str, rest: str, hops: int) -> str:
        if not rest:
            return f"{module}:"
        names = self.names[module]
        head, _, tail = rest.partition(".")
        defined = rest in names.functions or rest in names.classes or (not tail and head in names.variables)
        shadowed = head in names.module.imports and head not in names.functions and head not in names.classes
        if defined and not shadowed:
            return f"{module}:{rest}"
        # Modules may import a name from each other without end: after so many hops it is taken as written.
        base = self._top(names, head, hops - 1) if hops > 0 else ""
        if base and base != f"{module}:{head}":
            return self._member(base, tail, hops - 1) if tail else base
        inner = f"{module}.{head}" if module else head
        if inner in self.names and not base:
            return self._within(inner, tail, hops - 1)
        return f"{module}:{rest}"

    def _module(self, dotted: str) -> tuple[str, str] | None:
        """The longest module that the name starts with, and the rest."""
        found = self._longest(dotted)
        for prefix in self._above:
            if dotted.startswith(prefix):
                inner = self._longest(dotted[len(prefix) :])
                if inner is not None and (found is None or len(inner[1]) < len(found[1])):
                    found = inner
        for folder in self._inner.get(dotted.partition(".")[0], ()) if found is None else ():
            found = found or self._longest(f"{folder}.{dotted}")
        return found

    def _longest(self, dotted: str) -> tuple[str, str] | None:
        if dotted.partition(".")[0] not in self._tops:
            return None
        name, rest = dotted, ""
        while name:
            if name in self.names:
                return name, rest
            name, _, last = name.rpartition(".")
            rest = f"{last}.{rest}" if rest else last
        return None


def _by_path(module: Module) -> str:
    return module.path


def _is_property(function: Function) -> bool:
    return any(d.rpartition(".")[2] in ("property", "cached_property") for d in function.decorators)


is_property = _is_property
