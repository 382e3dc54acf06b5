"""The shortest way from a hot root to every function that one reaches."""

from __future__ import annotations

import fnmatch
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator

from dsv4prof.sync.code import facts, roots
from dsv4prof.sync.code.annotations import Annotations
from dsv4prof.sync.code.facts import Function, Module
from dsv4prof.sync.code.found import Step
from dsv4prof.sync.code.method_names import COMMON
from dsv4prof.sync.code.options import AuditOptions
from dsv4prof.sync.code.project import Project

# A method called on something unknown may be any of that name, unless there are more than so many.
_CANDIDATES = 8


class HotPaths:
    """`way(ref)` is the chain of functions from a root to `ref`, empty where no root reaches it."""

    def __init__(self, project: Project, annotations: Annotations, options: AuditOptions) -> None:
        self._project = project
        self._annotations = annotations
        self._cold = _matcher((*(p.glob for p in roots.COLD), *options.cold))
        self._hot = _matcher(tuple(p.glob for p in roots.HOT))
        self._asked = _matcher(options.hot)
        self._resolved: dict[tuple[str, str, str], tuple[str, ...]] = {}
        self._before: dict[str, str] = {}
        self._walk()

    def way(self, module: Module, function: str) -> tuple[Step, ...]:
        """Outermost first; `function` as in a finding, nested functions count as their outermost one."""
        ref = f"{module.name}:{function.partition('.<locals>')[0]}"
        steps: list[Step] = []
        while ref in self._before:
            made = self._project.function(ref)
            assert made is not None
            steps.append(Step(made.qualname, self._project.module_of(ref).path, made.line))
            if not self._before[ref]:
                break
            ref = self._before[ref]
        return tuple(reversed(steps))

    def cold(self, module: Module, function: str) -> bool:
        """Whether the function's name says that no step calls it."""
        return self._cold(f"{module.name}:{function.partition('.<locals>')[0]}")

    def _walk(self) -> None:
        queue: deque[str] = deque()
        for name, names in self._project.names.items():
            for qualname in names.functions:
                ref = f"{name}:{qualname}"
                if self._asked(ref) or (self._hot(ref) and not self._cold(ref)):
                    self._before[ref] = ""
                    queue.append(ref)
        while queue:
            ref = queue.popleft()
            for target in self._called(ref):
                if target not in self._before and not self._cold(target):
                    self._before[target] = ref
                    queue.append(target)

    def _called(self, ref: str) -> Iterator[str]:
        function = self._project.function(ref)
        assert function is not None
        module = self._project.module_of(ref)
        parameters = {parameter.name: parameter for parameter in function.parameters}
        itself = function.parameters[0].name if function.owner and function.parameters else ""
        for name in function.calls:
            head = name.partition(".")[0]
            if head not in parameters:
                yield from self._remembered(module, function, name, "")
            elif head == itself:
                yield from self._remembered(module, function, name, "self")
            else:
                held = self._annotated(module, parameters[head].annotation)
                yield from self._through(held, name.split(".")[1:])

    def _remembered(self, module: Module, function: Function, name: str, kind: str) -> tuple[str, ...]:
        key = (module.name, function.owner if kind else "", name)
        known = self._resolved.get(key)
        if known is None:
            if kind:
                found = self._through(f"{module.name}:{function.owner}", name.split(".")[1:])
            else:
                found = self._plain(module, name)
            known = self._resolved[key] = tuple(found)
        return known

    def _plain(self, module: Module, name: str) -> Iterator[str]:
        target = self._project.local(module, name) if not name.startswith(".") else ""
        if ":" in target:
            if self._project.function(target) is not None:
                yield target
                return
            if self._project.class_(target) is not None:
                return
        if "." in name and (not target or ":" in target):
            yield from self._by_name(name.rpartition(".")[2])

    def _through(self, ref: str, parts: list[str]) -> Iterator[str]:
        """The methods that `object.a.b.c` means for an object of the class `ref` ("" when it is not known)."""
        for part in parts[:-1]:
            ref = self._attribute(ref, part) if ref else ""
        if not parts:
            return
        name = parts[-1]
        if not ref:
            yield from self._by_name(name)
            return
        found = self._project.find_method(ref, name)
        if found:
            yield found
            yield from self._overrides(ref, name, _CANDIDATES)
            return
        method = self._method_held(ref, name)
        if method:
            yield method
            return
        held = self._attribute(ref, name)
        for called in ("forward", "__call__"):
            method = self._project.find_method(held, called) if held else ""
            if method:
                yield method

    def _method_held(self, ref: str, name: str) -> str:
        """`self.update = self.update_window`: the method that an attribute holds."""
        for step in self._project.ancestry(ref):
            made = self._project.class_(step)
            for one in made.attributes if made is not None else ():
                if one.name == name and one.how == facts.NAME and one.text.startswith("self."):
                    found = self._project.find_method(ref, one.text.removeprefix("self."))
                    if found:
                        return found
        return ""

    def _overrides(self, ref: str, name: str, left: int) -> Iterator[str]:
        stack = list(self._project.subclasses(ref))
        seen: set[str] = set()
        while stack and left > 0:
            child = stack.pop(0)
            if child in seen:
                continue
            seen.add(child)
            module, _, qualname = child.partition(":")
            if self._project.function(f"{module}:{qualname}.{name}") is not None:
                left -= 1
                yield f"{module}:{qualname}.{name}"
            stack.extend(self._project.subclasses(child))

    def _by_name(self, name: str) -> tuple[str, ...]:
        if name in COMMON or name.startswith("__"):
            return ()
        found = self._project.methods_named(name)
        return tuple(found) if len(found) <= _CANDIDATES else ()

    def _attribute(self, ref: str, name: str) -> str:
        """The class of an attribute, as far as an annotation or the call of a class tells."""
        for step in self._project.ancestry(ref):
            made = self._project.class_(step)
            for one in (*made.fields, *made.attributes) if made is not None else ():
                if one.name != name:
                    continue
                module = self._project.module_of(step)
                if one.how == facts.ANNOTATED:
                    found = self._annotated(module, one.text)
                elif one.how in (facts.CALL, facts.HOST_CALL):
                    found = self._project.local(module, one.text)
                elif one.how == facts.PARAMETER:
                    function = self._project.function(f"{module.name}:{one.function}")
                    parameters = function.parameters if function is not None else ()
                    found = next((self._annotated(module, p.annotation) for p in parameters if p.name == one.text), "")
                else:
                    continue
                if self._project.class_(found) is not None:
                    return found
        return ""

    def _annotated(self, module: Module, text: str) -> str:
        ref = self._annotations.value(text, module, "").ref if text else ""
        return ref if ":" in ref else ""


def without_a_function(globs: Iterable[str], modules: Iterable[Module]) -> list[str]:
    """The globs on `module:qualname` that name no function of the modules."""
    known = [f"{module.name}:{function.qualname}" for module in modules for function in module.functions]
    return [glob for glob in globs if not any(map(_matcher((glob,)), known))]


def _matcher(globs: tuple[str, ...]) -> Callable[[str], bool]:
    """Whether any glob hits a reference. Most speak of the last name alone, which is asked once a name."""
    plain = [glob.removeprefix("*:") for glob in globs if glob.startswith("*:")]
    other = [glob for glob in globs if not glob.startswith("*:")]
    by_name = [glob for glob in plain if "." not in glob.removeprefix("*.")]
    whole = _compiled([*other, *(f"*:{glob}" for glob in plain if glob not in by_name)])
    methods = _compiled([glob.removeprefix("*.") for glob in by_name if glob.startswith("*")])
    functions = _compiled([glob for glob in by_name if not glob.startswith("*.")])
    known: dict[tuple[str, bool], bool] = {}

    def hits(ref: str) -> bool:
        qualname = ref.partition(":")[2]
        owner, _, name = qualname.rpartition(".")
        key = name, bool(owner)
        found = known.get(key)
        if found is None:
            found = known[key] = bool((methods if owner else functions)(name))
        return found or bool(whole(ref))

    return hits


def _compiled(globs: list[str]) -> Callable[[str], object]:
    if not globs:
        return lambda text: None
    return re.compile("|".join(fnmatch.translate(glob) for glob in globs)).match
