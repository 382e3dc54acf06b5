"""How torch hands over what a program calls: one mode for operators, one for functions, both in every thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from dsv4prof.sync.runtime.shadow.operators import run
from dsv4prof.sync.runtime.shadow.tensor import ShadowTensor
from dsv4prof.sync.runtime.shadow.unguarded import without_guard
from dsv4prof.sync.runtime.shadow.world import World

_Function = Callable[..., Any]
_INDEXING = ("__getitem__", "__setitem__")


class OperatorMode(TorchDispatchMode):
    """Every operator of this thread."""

    supports_higher_order_operators = True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Torch would import its compiler, seconds of it, to keep it off this mode."""
        return False

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return run(func, types, args, kwargs or {}, self._world)


class FunctionMode(TorchFunctionMode):
    """Notes the outermost function, and runs what cannot be left to C++."""

    def __init__(self, world: World, replaced: dict[_Function, _Function]) -> None:
        super().__init__()
        self._world, self._replaced = world, replaced
        self._plainly = _plainly if world.guarded else without_guard(world)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        here, kwargs = self._world.here, kwargs or {}
        replacement = self._replaced.get(func)
        name = getattr(func, "__name__", "")
        if here.function or name == "__get__":
            return self._plainly(replacement or func, args, kwargs)
        here.function = name
        here.indexed_by_device = name in _INDEXING and _device_index(args[1])
        try:
            return self._plainly(replacement or func, args, kwargs)
        finally:
            here.function, here.indexed_by_device = "", False


def _plainly(function: _Function, args: Any, kwargs: dict[str, Any]) -> Any:
    return function(*args, **kwargs)


def _device_index(index: Any) -> bool:
    parts = index if isinstance(index, tuple) else (index,)
    return any(isinstance(one, ShadowTensor) and one.dim() == 0 for one in parts)
