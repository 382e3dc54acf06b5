"""An aten operator on shadows: judged, run on the host tensors inside, and wrapped again."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import lru_cache, partial
from typing import Any

import torch
from torch._ops import HigherOrderOperator

from dsv4prof.sync.runtime.shadow import special
from dsv4prof.sync.runtime.shadow.higher_order import higher_order
from dsv4prof.sync.runtime.shadow.schemas import decomposes, shape_of
from dsv4prof.sync.runtime.shadow.tensor import ShadowTensor, follow
from dsv4prof.sync.runtime.shadow.widening import computed
from dsv4prof.sync.runtime.shadow.world import World

_Operator = Any
_HOST = torch.device("cpu")
_NO_MEMORY = "can't allocate memory"


def run(func: _Operator, types: Any, args: Any, kwargs: dict[str, Any], world: World | None) -> Any:
    """One operator as dispatch hands it over. NotImplemented for tensors of others, who then have their turn."""
    if isinstance(func, HigherOrderOperator):
        return higher_order(func, args, kwargs, world)
    tensors = _tensors_in((args, kwargs))
    if any(not _is_ours(one.__class__) for one in tensors):
        return NotImplemented
    shadows = [one for one in tensors if isinstance(one, ShadowTensor)]
    to_device = any(_is_cuda(one) for one in (kwargs.get("device"), *args))
    if world is None:
        return _computed(func, args, kwargs, shadows, to_device, None)
    if not shadows and not to_device:
        return _on_host(func, args, kwargs, world)
    if decomposes(func) and func not in special.DEVICE and world.mode is not None:
        with world.mode:
            return func.decompose(*args, **kwargs)
    special.refuse_mixed_devices(func, tensors, world)
    shape = shape_of(func)
    call = world.call(shape.name, shape.overload, args, kwargs)
    waits = world.judge(call)
    world.begins(call)
    with world.unseen():
        result = _computed(func, args, kwargs, shadows, to_device, world)
    if world.here.graph is not None:
        again = partial(_computed, func, args, kwargs, shadows, to_device, world)
        world.here.graph.add(call, again, result)
    if not shape.is_view and not special.launches_nothing(shape.name):
        world.launched(call, result)
    world.ran(call, result)
    if waits:
        world.waited_for_stream(world.here.stream)
    return result


def _on_host(func: _Operator, args: Any, kwargs: dict[str, Any], world: World) -> Any:
    """An operator that has nothing to do with a device, pinning apart."""
    handler = special.HOST.get(func)
    if handler is not None:
        return handler(func, args, kwargs, world)
    pin = kwargs.get("pin_memory")
    if pin:
        kwargs = {**kwargs, "pin_memory": False}
        world.judge(world.call("aten::_pin_memory", "", (), {}))
    shape = shape_of(func)
    call = world.call(shape.name, shape.overload, args, kwargs)
    world.begins(call)
    result = func(*args, **kwargs)
    if pin and isinstance(result, torch.Tensor):
        world.memory.pin(result)
    if world.listener is not None:
        for one in _tensors_in(result):
            world.memory.watch(one)
    world.ran(call, result)
    return result


def _computed(
    func: _Operator,
    args: Any,
    kwargs: dict[str, Any],
    shadows: list[ShadowTensor],
    to_device: bool,
    world: World | None,
) -> Any:
    handler = special.DEVICE.get(func)
    if handler is not None and world is not None:
        return handler(func, args, kwargs, world)
    index = _index(kwargs.get("device"), shadows, world)
    plain_args = [_HOST if _is_cuda(one) else _inside(one) for one in args]
    plain_kwargs = {name: _inside(one) for name, one in kwargs.items()}
    if _is_cuda(kwargs.get("device")):
        plain_kwargs["device"] = _HOST
    if plain_kwargs.get("pin_memory"):
        plain_kwargs["pin_memory"] = False
    try:
        result = computed(func, plain_args, plain_kwargs)
    except NotImplementedError as error:
        why = str(error).partition("\n")[0][:200]
        raise NotImplementedError(f"a shadow device computes on the CPU, and there {func} cannot: {why}") from error
    except RuntimeError as error:
        if _NO_MEMORY not in str(error):
            raise
        raise torch.OutOfMemoryError(
            f"CUDA out of memory: a shadow device has the host's, too little for {func}"
        ) from error
    return _wrapped(
        func, args, kwargs, result, _Wrapping(shadows, index, to_device, world, is_view=shape_of(func).is_view)
    )


class _Wrapping:
    """Turns host results into what the program gets."""

    def __init__(
        self, shadows: list[ShadowTensor], index: int, to_device: bool, world: World | None, *, is_view: bool
    ) -> None:
        self.shadows, self.index, self.to_device, self.world = shadows, index, to_device, world
        self.versioned = bool(
            is_view and shadows and torch.is_inference_mode_enabled() and not shadows[0].is_inference()
        )

    def one(self, inner: torch.Tensor) -> torch.Tensor:
        if isinstance(inner, ShadowTensor):
            return inner
        for shadow in self.shadows:
            if shadow.inner is inner:
                return shadow
        # A view of a tensor made outside of inference mode has a version, which torch sets on what we return.
        with torch.inference_mode(False) if self.versioned else nullcontext():
            if self.world is not None:
                return self.world.wrap(inner, self.index)
            return ShadowTensor(inner, torch.device("cuda", self.index))


def _wrapped(func: _Operator, args: Any, kwargs: dict[str, Any], result: Any, wrapping: _Wrapping) -> Any:
    shape = shape_of(func)
    written = shape.written(args, kwargs)
    for one in written:
        if isinstance(one, ShadowTensor):
            follow(one)
    if shape.returns_nothing:
        return None
    if shape.returns_written:
        return written[0] if len(written) == 1 and not isinstance(result, tuple) else _same_kind(result, written)
    if special.result_is_host(func, kwargs):
        if wrapping.world is not None:
            special.host_result(func, kwargs, result, wrapping.world)
        return result
    if not wrapping.to_device and not any(isinstance(one, ShadowTensor) for one in wrapping.shadows):
        return result
    keep = special.HOST_OUTPUTS.get(shape.name, frozenset())
    if keep and isinstance(result, tuple):
        return tuple(part if place in keep else _map(wrapping.one, part) for place, part in enumerate(result))
    return _map(wrapping.one, result)


def _inside(value: Any) -> Any:
    """An argument with host tensors in place of shadows."""
    if isinstance(value, ShadowTensor):
        return value.inner
    if isinstance(value, (list, tuple)):
        return [_inside(one) for one in value]
    return value


def _map(change: Callable[[torch.Tensor], torch.Tensor], value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, (tuple, list)):
        return type(value)([_map(change, one) for one in value])
    return value


def _same_kind(result: Any, written: list[Any]) -> Any:
    if result is None:
        return None
    return type(result)(written) if isinstance(result, (list, tuple)) else written[0]


def _is_cuda(value: Any) -> bool:
    if isinstance(value, str):
        return value.split(":")[0] == "cuda"
    return isinstance(value, torch.device) and value.type == "cuda"


def _index(device: Any, shadows: list[ShadowTensor], world: World | None) -> int:
    if device is not None:
        wanted = torch.device(device)
        if wanted.type == "cuda" and wanted.index is not None:
            return wanted.index
    if shadows and (device is None or torch.device(device).type != "cuda"):
        return shadows[0].shadow_device.index or 0
    return world.here.device if world is not None else 0


def _tensors_in(value: Any) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    _collect(value, found)
    return found


def _collect(value: Any, found: list[torch.Tensor]) -> None:
    if isinstance(value, torch.Tensor):
        found.append(value)
    elif isinstance(value, (list, tuple)):
        for one in value:
            _collect(one, found)
    elif isinstance(value, dict):
        for one in value.values():
            _collect(one, found)


@lru_cache(maxsize=256)
def _is_ours(kind: type) -> bool:
    """Shadows, plain tensors, and subclasses that leave operators to torch (Parameter, Buffer)."""
    if issubclass(kind, ShadowTensor):
        return True
    dispatch = getattr(kind, "__torch_dispatch__", None)
    return dispatch in (None, torch.Tensor.__torch_dispatch__, torch._C._disabled_torch_dispatch_impl)
