"""Where C++ has no device guard for CUDA: calls are changed so that C++ never has to ask one.

A device without a number gets one, and a number that is assigned to an element comes as a host tensor, as C++ would
make it. What C++ decides by asking whether a tensor is of `meta` (one_hot) still ends with torch's error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from dsv4prof.sync.runtime.shadow.tensor import ShadowTensor
from dsv4prof.sync.runtime.shadow.world import World

_Function = Callable[..., Any]


def without_guard(world: World) -> Callable[[_Function, Any, dict[str, Any]], Any]:
    """Calls a function of torch with arguments that need no guard."""

    def call(function: _Function, args: Any, kwargs: dict[str, Any]) -> Any:
        if function is torch.device:
            return function(*args, **kwargs)
        if function is torch.Tensor.cuda and not isinstance(args[0], ShadowTensor):
            rest = {name: value for name, value in kwargs.items() if name != "device"}
            wanted = args[1] if len(args) > 1 else kwargs.get("device")
            return torch.Tensor.to(args[0], _numbered("cuda" if wanted is None else wanted, world), **rest)
        if function is torch.Tensor.__setitem__ and isinstance(args[2], (bool, int, float, complex)):
            return function(args[0], args[1], torch.tensor(args[2], dtype=args[0].dtype))
        given = [_numbered(one, world) for one in args]
        return function(*given, **{name: _numbered(one, world) for name, one in kwargs.items()})

    return call


def _numbered(value: Any, world: World) -> Any:
    if value == "cuda" if isinstance(value, str) else isinstance(value, torch.device) and str(value) == "cuda":
        return torch.device("cuda", world.here.device)
    return value
