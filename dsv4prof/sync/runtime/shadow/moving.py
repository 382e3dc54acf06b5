"""Tensors that programs move to a device in place: `module.to("cuda")`, `parameter.data = on_device`.

Torch would share the insides of a shadow with a plain tensor, which then says `cuda` and cannot compute.
"""

from __future__ import annotations

from typing import Any

import torch

from dsv4prof.sync.runtime.shadow.patches import Patches
from dsv4prof.sync.runtime.shadow.subclasses import on_device, on_host
from dsv4prof.sync.runtime.shadow.tensor import ShadowTensor


def install(patches: Patches) -> None:
    """An assignment to `.data`, which is how modules move, makes a shadow of the tensor itself, or a plain tensor."""
    inherited = torch._C.TensorBase.data

    def get(self: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = inherited.__get__(self)
        return found

    def put(self: torch.Tensor, value: torch.Tensor) -> None:
        if isinstance(value, ShadowTensor) and not isinstance(self, ShadowTensor):
            become(self, value)
        else:
            inherited.__set__(self, value)

    patches.put(torch.Tensor, "data", property(get, put))


def become(tensor: torch.Tensor, value: torch.Tensor) -> None:
    """The tensor object is the other kind from now on, for all who hold it."""
    made: Any = value.detach()
    if isinstance(tensor, torch.nn.Parameter):
        made = torch.nn.Parameter(made, requires_grad=tensor.requires_grad)
    else:
        made.requires_grad_(tensor.requires_grad)
    cls = on_host(type(tensor))
    if cls not in (None, torch.Tensor, torch.nn.Parameter, torch.nn.Buffer):
        made.__class__ = on_device(cls) if isinstance(made, ShadowTensor) else cls
    # What a program hung on its parameter, such as how to load it, stays there.
    made.__dict__.update({name: one for name, one in vars(tensor).items() if name not in ("inner", "shadow_device")})
    try:
        torch.utils.swap_tensors(tensor, made)
    except RuntimeError as error:
        # C++ holds it, as a scripted module does its parameters.
        message = "this tensor is held by C++, so it cannot become one of a shadow device in place"
        raise RuntimeError(f"{message}: make it there with device=") from error
