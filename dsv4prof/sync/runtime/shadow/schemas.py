"""What an operator's schema says: which arguments it writes, whether it returns them, whether it is a view."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch


class Shape:
    """Of one operator overload."""

    def __init__(self, func: Any) -> None:
        schema = func._schema
        self.name, self.overload = str(schema.name), str(schema.overload_name)
        self.is_pointwise = torch.Tag.pointwise in func.tags
        self._written = [
            (place, argument.name)
            for place, argument in enumerate(schema.arguments)
            if argument.alias_info is not None and argument.alias_info.is_write
        ]
        returns = [one.alias_info for one in schema.returns]
        writes = [one is not None and one.is_write for one in returns]
        self.returns_nothing = not returns
        self.returns_written = bool(self._written) and all(writes)
        self.is_view = any(one is not None and not one.is_write for one in returns)

    def written(self, args: Any, kwargs: dict[str, Any]) -> list[Any]:
        """The tensors written; of a list of tensors its members."""
        found: list[Any] = []
        for place, name in self._written:
            value = args[place] if place < len(args) else kwargs.get(name)
            if isinstance(value, (list, tuple)):
                found.extend(value)
            elif value is not None:
                found.append(value)
        return found


@cache
def shape_of(func: Any) -> Shape:
    """Raises AttributeError for what is no operator overload."""
    return Shape(func)


@cache
def decomposes(func: Any) -> bool:
    """Whether torch composes it of other operators on a device, as it does above dispatch unless in inference mode."""
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd"))
