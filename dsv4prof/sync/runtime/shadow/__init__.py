"""Tensors that say `cuda` and compute on the CPU: code for a GPU runs to its end without one, every host sync is
listed, and the values are true.

`device.ShadowDevice` is the context manager. All of it imports torch, so import it inside functions only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dsv4prof.sync.runtime.shadow.device import ShadowDevice
    from dsv4prof.sync.runtime.shadow.tensor import inner_of, memory_of

__all__ = ["ShadowDevice", "inner_of", "memory_of"]


def __getattr__(name: str) -> Any:
    """Torch is imported when one of the two is asked for."""
    if name == "ShadowDevice":
        from dsv4prof.sync.runtime.shadow.device import ShadowDevice

        return ShadowDevice
    if name in ("inner_of", "memory_of"):
        from dsv4prof.sync.runtime.shadow import tensor

        return getattr(tensor, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
