"""Code that is compiled for a device: Triton kernels run through Triton's interpreter, torch.compile runs eagerly.

Without a device there is nothing to compile for. TRITON_INTERPRET=1 must be set before the kernels are defined.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch

from dsv4prof.errors import UsageError
from dsv4prof.sync.runtime.shadow.patches import Patches
from dsv4prof.sync.runtime.shadow.tensor import inner_of
from dsv4prof.sync.runtime.shadow.world import World


def install(patches: Patches, world: World, stack: ExitStack) -> None:
    """`stack` ends what is no attribute."""
    patches.put(torch, "compile", _eagerly)
    if "torch.export" in sys.modules:
        patches.put(torch.export, "export", _refused_export)
    if "torch._dynamo" in sys.modules and hasattr(torch.compiler, "set_stance"):
        stack.enter_context(torch.compiler.set_stance("force_eager"))
    if find_spec("triton") is None:
        return
    try:
        grid = import_module("triton.runtime.interpreter").GridExecutor
        compiled = import_module("triton.runtime.jit").JITFunction
    except (ImportError, AttributeError):
        # Another version keeps them elsewhere; then kernels end with Triton's own error.
        return
    patches.put(compiled, "run", _refused)
    patches.put(grid, "__call__", _interpreted(grid.__call__, world))


def _eagerly(model: Any = None, **options: Any) -> Any:
    return model if model is not None else lambda function: function


def _refused(kernel: Any, *args: Any, **options: Any) -> Any:
    name = getattr(kernel, "__name__", None) or "a Triton kernel"
    raise UsageError(
        f"{name} is compiled for a device, and a shadow device has none", hint="set TRITON_INTERPRET=1 to interpret it"
    )


def _refused_export(*args: Any, **options: Any) -> Any:
    raise UsageError(
        "torch.export traces a program without its values, and a shadow device runs it with them",
        hint="export outside of the watch",
    )


def _interpreted(execute: Callable[..., Any], world: World) -> Callable[..., Any]:
    """The interpreter on the host tensors inside; the launch counts as an operator."""

    def run(executor: Any, *args: Any, **options: Any) -> Any:
        name = getattr(getattr(executor, "fn", None), "__name__", "kernel")
        call = world.call(f"triton::{name}", "", args, options)
        world.begins(call)
        with world.unseen():
            plain = {key: inner_of(one) for key, one in options.items()}
            result = execute(executor, *(inner_of(one) for one in args), **plain)
        world.launched(call, result)
        world.ran(call, result)
        return result

    return run
