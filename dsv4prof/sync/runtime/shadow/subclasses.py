"""Shadows as objects of a program's own classes: `tensor.as_subclass(T)`, parameters that know how to load themselves.

Torch gives no object of another class to memory that it knows by one, so the shadow becomes an object of both classes.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch

from dsv4prof.sync.runtime.shadow.patches import Patches
from dsv4prof.sync.runtime.shadow.tensor import ShadowTensor

_OURS = ("__torch_dispatch__", "__reduce_ex__")


class _Shadow(ShadowTensor):
    """What it gives is of its class again, as with subclasses of torch.Tensor."""

    __torch_dispatch__ = ShadowTensor.__torch_dispatch__

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        # Torch's own, which it takes away from a class that has operators handed over.
        return torch.Tensor.__torch_function__.__func__(cls, func, types, args, kwargs)


def install(patches: Patches) -> None:
    """Both ways in which programs make such objects."""
    as_subclass, new = torch.Tensor.as_subclass, torch.nn.Parameter.__new__

    def become(self: torch.Tensor, cls: Any) -> Any:
        if not isinstance(self, ShadowTensor):
            return as_subclass(self, cls)
        if _hands_over_operators(cls):
            raise TypeError(
                f"a tensor of a shadow device cannot become a {cls.__name__}, which handles operators itself"
            )
        with torch._C.DisableTorchFunctionSubclass():
            shared: Any = self.view_as(self)
        shared.__class__ = on_device(cls)
        return shared

    def parameter(cls: Any, data: Any = None, requires_grad: bool = True, *rest: Any, **options: Any) -> Any:
        if not isinstance(data, ShadowTensor) or cls is torch.nn.Parameter or not issubclass(cls, torch.nn.Parameter):
            return new(cls, data, requires_grad, *rest, **options)
        made: Any = new(torch.nn.Parameter, data, requires_grad)
        made.__class__ = on_device(cls)
        return made

    patches.put(torch.Tensor, "as_subclass", become)
    patches.put(torch.nn.Parameter, "__new__", staticmethod(parameter))


def _hands_over_operators(cls: Any) -> bool:
    if issubclass(cls, ShadowTensor):
        return False
    return cls.__torch_dispatch__ not in (torch.Tensor.__torch_dispatch__, torch._C._disabled_torch_dispatch_impl)


def on_device(cls: Any) -> Any:
    """The class of a shadow that is to be an object of the given one."""
    if issubclass(cls, ShadowTensor):
        return cls
    return ShadowTensor if cls in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer) else _both(cls)


def on_host(cls: Any) -> Any:
    """The other way round: the program's own class, None for none."""
    found = cls.__mro__[1] if issubclass(cls, _Shadow) else cls
    return None if found is _Shadow or issubclass(found, ShadowTensor) else found


@lru_cache(maxsize=256)
def _both(cls: Any) -> type:
    own = {name: ShadowTensor.__dict__[name] for name in _OURS}
    return type(cls)(cls.__name__, (cls, _Shadow), {**own, "__module__": cls.__module__})
