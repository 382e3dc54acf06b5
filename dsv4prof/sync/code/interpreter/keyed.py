"""Dicts whose keys are known: `items` are the values, `const` the names."""

from __future__ import annotations

from msgspec.structs import replace

from dsv4prof.sync.code import values
from dsv4prof.sync.code.values import Value


def keyed(held: dict[str, Value]) -> Value:
    """A dict whose keys are known: `**` of it gives keywords, an element of it its own value."""
    if not held:
        return Value(kinds=values.MAPPING)
    made = values.mapping_of(values.join_all(list(held.values())))
    return replace(made, items=tuple(held.values()), const=tuple(held))


def of_key(mapping: Value, index: Value) -> Value | None:
    """`mapping["name"]` of such a dict."""
    names = mapping.const
    if mapping.kinds == values.MAPPING and isinstance(names, tuple) and mapping.items and index.const in names:
        return mapping.items[names.index(index.const)]
    return None


def with_key(mapping: Value, index: Value, value: Value) -> Value:
    """The dict after `mapping[index] = value`."""
    names = mapping.const
    if isinstance(names, tuple) and mapping.items is not None and isinstance(index.const, str):
        held = dict(zip(names, mapping.items, strict=True))
        held[index.const] = value
        return keyed(held)
    element = value if mapping.element is None else values.join(mapping.element, value)
    return values.mapping_of(element)
