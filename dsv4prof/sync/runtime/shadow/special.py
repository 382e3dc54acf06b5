"""Operators that are not simply computed on the host: pinning, results that lie on the host, mixed devices, groups."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from dsv4prof.sync.runtime.shadow import cells
from dsv4prof.sync.runtime.shadow.schemas import shape_of
from dsv4prof.sync.runtime.shadow.tensor import ShadowTensor
from dsv4prof.sync.runtime.shadow.world import World

_Handler = Callable[[Any, Any, dict[str, Any], World], Any]
_aten = torch.ops.aten

# Outputs that lie on the host whatever the inputs are.
HOST_OUTPUTS: dict[str, frozenset[int]] = {"aten::_pack_padded_sequence": frozenset({1})}
_NO_LAUNCH = frozenset(
    f"aten::{name}"
    for name in (
        "empty",
        "empty_strided",
        "empty_like",
        "new_empty",
        "new_empty_strided",
        "lift_fresh",
        "detach",
        "alias",
        "set_",
        "resize_",
        "is_pinned",
        "record_stream",
        "is_same_size",
    )
)
# Kernels over several tensors that refuse a host tensor beside one on a device, unless it is a number.
_ONE_DEVICE = frozenset(
    f"aten::{name}"
    for name in (
        *("mm", "addmm", "bmm", "baddbmm", "addmv", "mv", "dot", "cat", "index_select", "gather", "embedding"),
        *("scatter", "scatter_", "scatter_add", "scatter_add_", "index_add", "index_add_", "index_copy", "index_copy_"),
        *("repeat_interleave", "masked_scatter", "masked_scatter_"),
    )
)


def launches_nothing(name: str) -> bool:
    """Whether an operator only allocates or describes."""
    return name in _NO_LAUNCH


def result_is_host(func: Any, kwargs: dict[str, Any]) -> bool:
    """Whether the results are host tensors: the program asked for the CPU, or for a number."""
    device = kwargs.get("device")
    return device is not None and torch.device(device).type == "cpu"


def host_result(func: Any, kwargs: dict[str, Any], result: Any, world: World) -> None:
    """torch pins the target of a non_blocking copy to the host that it allocates itself."""
    if not isinstance(result, torch.Tensor):
        return
    if kwargs.get("pin_memory") or (func is _aten._to_copy.default and kwargs.get("non_blocking")):
        world.memory.pin(result)


def refuse_mixed_devices(func: Any, tensors: Sequence[torch.Tensor], world: World) -> None:
    """Raises the RuntimeError that a device raises for a host vector beside device tensors."""
    shape = shape_of(func)
    if not shape.is_pointwise and shape.name not in _ONE_DEVICE:
        return
    shadows = [one for one in tensors if isinstance(one, ShadowTensor)]
    strangers = [one for one in tensors if not isinstance(one, ShadowTensor) and one.dim()]
    if shadows and strangers and shape.name not in ("aten::copy_", "aten::_to_copy"):
        raise RuntimeError(
            f"Expected all tensors to be on the same device, but found at least two devices, "
            f"{shadows[0].device} and cpu! ({shape.name})"
        )


def _pinned(func: Any, args: Any, kwargs: dict[str, Any], world: World) -> Any:
    """Page-locked memory is a copy; a tensor that has it already is given back."""
    source = args[0]
    if world.memory.is_pinned(source):
        return source
    world.judge(world.call("aten::_pin_memory", "", args, kwargs))
    copied = source.clone(memory_format=torch.preserve_format)
    world.memory.pin(copied)
    world.ran(world.call("aten::copy_", "", (copied, source), {}), copied)
    return copied


def _is_pinned(func: Any, args: Any, kwargs: dict[str, Any], world: World) -> bool:
    return world.memory.is_pinned(args[0])


def _not_pinned(func: Any, args: Any, kwargs: dict[str, Any], world: World) -> bool:
    return False


def _cannot_pin(func: Any, args: Any, kwargs: dict[str, Any], world: World) -> Any:
    raise RuntimeError(f"cannot pin a tensor on {args[0].device}, only dense CPU tensors can be pinned")


def _never(func: Any, args: Any, kwargs: dict[str, Any], world: World) -> bool:
    return False


def _fast_paths() -> list[Any]:
    """Operators by which torch asks whether a vendor's library takes over; not every version has all of them."""
    packets = [getattr(_aten, name, None) for name in ("_use_cudnn_ctc_loss", "_use_miopen_ctc_loss")]
    return [getattr(packet, overload) for packet in packets if packet is not None for overload in packet.overloads()]


# In inference mode pin_memory arrives whole, else as the operator inside it.
_PIN = (_aten._pin_memory.default, _aten.pin_memory.default)
HOST: dict[Any, _Handler] = {**dict.fromkeys(_PIN, _pinned), _aten.is_pinned.default: _is_pinned}
DEVICE: dict[Any, _Handler] = {
    **dict.fromkeys(_PIN, _cannot_pin),
    _aten.is_pinned.default: _not_pinned,
    **dict.fromkeys(_fast_paths(), _never),
    _aten._thnn_fused_lstm_cell.default: cells.lstm,
    _aten._thnn_fused_gru_cell.default: cells.gru,
    _aten._thnn_fused_gru_cell_backward.default: cells.gru_backward,
}
