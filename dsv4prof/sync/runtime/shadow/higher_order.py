"""Operators over functions (`torch.cond`, `flex_attention`): what they are composed of is seen, one by one."""

from __future__ import annotations

from typing import Any

from torch._C import DispatchKey

from dsv4prof.sync.runtime.shadow.world import World


def higher_order(func: Any, args: Any, kwargs: dict[str, Any], world: World | None) -> Any:
    """Run as torch runs it eagerly. NotImplemented where torch has no such way, or no shadow device is entered."""
    kernels = getattr(func, "py_kernels", {})
    eager = kernels.get(DispatchKey.CompositeExplicitAutograd) or kernels.get(DispatchKey.CUDA)
    if eager is None or world is None or world.mode is None:
        return NotImplemented
    if func.name() in _WITHOUT_MODE:
        # Torch refuses these below a mode; the shadows among their operands hand over what is done with them.
        return eager(*args, **kwargs)
    with world.mode:
        return eager(*args, **kwargs)


_WITHOUT_MODE = ("cond", "while_loop")
