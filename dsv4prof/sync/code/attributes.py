"""What an attribute of an object is: by its annotation, by everything assigned to it, and last by its name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from dsv4prof.sync.code import facts, semantics, values
from dsv4prof.sync.code.effects import Args
from dsv4prof.sync.code.facts import Assignment, Module
from dsv4prof.sync.code.interpreter.run import ELEMENTS
from dsv4prof.sync.code.interpreter.sameness import anonymous
from dsv4prof.sync.code.project import is_property
from dsv4prof.sync.code.values import (
    ANYTHING,
    CALLABLE,
    HOST,
    LIKELY,
    NONE,
    OBJECT,
    POSSIBLE,
    TENSOR,
    UNKNOWN,
    Value,
    constant,
    join_all,
    settled,
)

if TYPE_CHECKING:
    from dsv4prof.sync.code.world import World

# An attribute of an unknown object is looked up in at most so many classes.
_HOLDERS = 10
# In more of them only annotations are read, and in more than this nothing.
_MANY = 60


class Attributes:
    """The attributes of all classes of one project."""

    def __init__(self, world: World) -> None:
        self._world = world

    def of_class(self, ref: str, name: str, level: int) -> Value:
        """`object.name` of an object of the class `ref`."""
        return self._world.memo.ask(
            ("attribute", ref, name), level, lambda deeper: self._attribute(ref, name, deeper), None
        ) or self._written(ref, name)

    def _written(self, ref: str, name: str) -> Value:
        """What the annotation alone says."""
        for step in self._world.project.ancestry(ref):
            made = self._world.project.class_(step)
            if made is None:
                continue
            module = self._world.project.module_of(step)
            for one in (*made.fields, *made.attributes):
                if one.name == name and one.how == facts.ANNOTATED:
                    told = self._world.annotations.value(one.text, module, name)
                    if told is not ANYTHING:
                        return values.declared(told, one.line, module.path)
        return self._world.assumed(name)

    def _told(self, ref: str, name: str, level: int) -> Value:
        return self._written(ref, name)

    def _attribute(self, ref: str, name: str, level: int) -> Value:
        project = self._world.project
        method = project.find_method(ref, name)
        if method:
            function = project.function(method)
            assert function is not None
            if is_property(function):
                return self._world.returns(method, level + 1)
            return Value(kinds=CALLABLE, ref=method)
        external = ""
        for step in project.ancestry(ref):
            made = project.class_(step)
            if made is None:
                external = external or step
                continue
            found = [one for one in (*made.fields, *made.attributes) if one.name == name]
            if any(one.how != facts.ELEMENT for one in found):
                return self._joined(found, project.module_of(step), step, name, level)
        if external and ":" not in external:
            known = semantics.attribute(Value(kinds=OBJECT, ref=external), name)
            if known is not None:
                return known
        below = [child for child in project.subclasses(ref) if child in project.holders(name)]
        if below and len(below) <= _HOLDERS and level > 0:
            return weakened(join_all([self.of_class(child, name, level) for child in below]))
        return self._world.assumed(name)

    def _joined(self, found: list[Assignment], module: Module, ref: str, name: str, level: int) -> Value:
        """All assignments of one attribute; an annotation that says no tensor says it all."""
        told = ANYTHING
        for one in found:
            if one.how == facts.ANNOTATED:
                told = self._world.annotations.value(one.text, module, name)
                if told is not ANYTHING:
                    told = values.declared(told, one.line, module.path)
                    break
        if told is not ANYTHING and not told.kinds & (TENSOR | UNKNOWN):
            return self._filled(told, found, module, level)
        found = [one for one in found if one.how not in (facts.ANNOTATED, facts.ELEMENT)]
        made = [self.assigned(one, module, ref, level) for one in found]
        known = [value for value in made if value.kinds != UNKNOWN]
        if told is not ANYTHING:
            placed = [value for value in known if value.kinds & TENSOR and value.places]
            if placed:
                return join_all([*placed, constant(None)]) if told.kinds & NONE else join_all(placed)
            return told
        if not known:
            return self._world.assumed(name)
        joined = join_all(known)
        if len(known) < len(made):
            joined = weakened(joined) if not joined.kinds & TENSOR else joined
            return replace(joined, kinds=joined.kinds | UNKNOWN)
        if joined.kinds == NONE:
            # Somebody else fills it.
            return values.join(self._world.assumed(name), joined)
        return joined

    def _filled(self, told: Value, found: list[Assignment], module: Module, level: int) -> Value:
        """A container annotated to hold tensors: where they are, what the class itself puts into it says best."""
        puts = {one.function for one in found if one.how == facts.ELEMENT}
        if not puts or not level or told.element is None or not told.element.may_be_on_device:
            return told
        name = found[0].name + ELEMENTS
        stored = [self._world.result(f"{module.name}:{put}", level).stores.get(name, ANYTHING) for put in puts]
        if not all(value.kinds == TENSOR and value.places and value.strength > POSSIBLE for value in stored):
            return told
        return replace(told, element=join_all([anonymous(settled(value)) for value in stored]))

    def assigned(self, one: Assignment, module: Module, ref: str, level: int) -> Value:
        if one.how == facts.CONST:
            return constant(None) if one.text == "None" else Value(kinds=HOST, strength=LIKELY)
        if one.how == facts.ANNOTATED:
            return self._world.annotations.value(one.text, module, one.name)
        if one.how == facts.PARAMETER:
            function = self._world.project.function(f"{module.name}:{one.function}")
            value = (
                self._world.parameters(f"{module.name}:{one.function}", function).get(one.text) if function else None
            )
            if value is None or value.kinds == UNKNOWN:
                return self._world.assumed(one.name)
            return replace(value, params=values.NO_PARAMS)
        if one.how == facts.NAME:
            if one.text.partition(".")[0] in ("self", "cls"):
                return self._chain(ref, one.text.split(".")[1:], level)
            target = self._world.project.local(module, one.text)
            if target:
                return self._world.referred(target, level)
        if one.how in (facts.CALL, facts.HOST_CALL):
            target = self._world.project.local(module, one.text)
            if ":" in target and self._world.project.class_(target) is not None:
                return self._world.annotations.instance(target, one.name)
            if ":" in target and not one.function:
                return self._world.returns(target, level)
            if not one.function:
                made = semantics.call(target or one.text, Args((), {}, True, one.how == facts.CALL))
                return made.value if made is not None else ANYTHING
        if one.function:
            stored = self._world.result(f"{module.name}:{one.function}", level).stores
            # Whether somebody waited before another method reads it is not known here.
            return anonymous(settled(stored.get(one.name, ANYTHING)))
        return ANYTHING

    def _chain(self, ref: str, parts: list[str], level: int) -> Value:
        value = Value(kinds=OBJECT, ref=ref)
        for part in parts:
            if not value.kinds & OBJECT or ":" not in value.ref:
                return self.of_any(part, level)
            value = self.of_class(value.ref, part, level)
        return value

    def of_any(self, name: str, level: int) -> Value:
        """`x.name` of an object of which nothing is known: what all classes say that have such an attribute."""
        holders = self._world.project.holders(name)
        assumed = self._world.assumed(name)
        if not holders or len(holders) > _MANY:
            return assumed
        return self._world.memo.ask(("any", name), level, lambda deeper: self._any(name, holders, deeper), assumed)

    def _any(self, name: str, holders: list[str], level: int) -> Value:
        look = self.of_class if len(holders) <= _HOLDERS else self._told
        held = [look(ref, name, level) for ref in holders]
        known = [value for value in held if value.kinds != UNKNOWN]
        assumed = self._world.assumed(name)
        if not known:
            return assumed
        joined = join_all(known)
        if joined.kinds & CALLABLE:
            return assumed
        tensors = all(value.kinds & TENSOR and not value.kinds & ~(TENSOR | NONE) for value in known)
        if assumed.kinds & TENSOR and not assumed.may_be_on_device:
            return replace(assumed, kinds=assumed.kinds | joined.kinds & NONE)
        if tensors and len(known) == len(held):
            return replace(joined, strength=min(joined.strength, LIKELY))
        return weakened(joined)


def weakened(value: Value) -> Value:
    """The value, and what it holds, as a mere possibility."""
    if value.items is not None:
        value = replace(value, items=tuple(weakened(item) for item in value.items))
    if value.element is not None:
        value = replace(value, element=weakened(value.element))
    if value.kinds & TENSOR and value.strength > POSSIBLE:
        return replace(value, strength=POSSIBLE)
    return value
