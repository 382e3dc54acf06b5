"""Functions of torch that go past dispatch: built of Python values, or reads of host tensors that a race may spoil."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from dsv4prof.sync.runtime.reasons import named
from dsv4prof.sync.runtime.shadow.tensor import ShadowTensor, inner_of
from dsv4prof.sync.runtime.shadow.world import World

_Function = Callable[..., Any]


def replacements(world: World, *, lifts: bool) -> dict[_Function, _Function]:
    """By the function that they replace while a program calls it outermost.

    lifts: torch shows the upload within `torch.tensor(values, device=...)`; else it is made visible here.
    """
    tensor = torch.Tensor
    found: dict[_Function, _Function] = {
        one: _built(one, world, lifts=lifts)
        for one in (torch.tensor, torch.as_tensor, torch.asarray, tensor.new_tensor)
    }
    for read in (tensor.numpy, tensor.tolist, tensor.item, tensor.__array__, tensor.data_ptr):
        found[read] = _read(read, world)
    for product in (torch.prod, tensor.prod, torch.cumprod, tensor.cumprod):
        found[product] = _product(product, world)
    if getattr(torch._C, "_has_cuda", False):
        found[torch.nn.functional.scaled_dot_product_attention] = _attention
    found[torch.nn.functional.ctc_loss] = _ctc_loss
    found[tensor.type] = _type
    found[torch.from_dlpack] = _from_dlpack(world)
    return found


def _built(function: _Function, world: World, *, lifts: bool) -> _Function:
    """Elements that are shadows are read one by one, as torch does; a pinned result is noted as such."""

    def build(*args: Any, pin_memory: bool = False, **options: Any) -> Any:
        place = 1 if function is torch.Tensor.new_tensor else 0
        given = list(args)
        if place < len(given) and isinstance(given[place], (list, tuple)):
            given[place] = _read_out(given[place])
        if place == 1 and isinstance(given[0], ShadowTensor):
            options.setdefault("dtype", given[0].dtype)
            options.setdefault("device", given[0].device)
            return torch.tensor(*given[1:], **options)
        device = options.get("device")
        if not lifts and device is not None and not isinstance(given[place], torch.Tensor):
            made = function(*given, **{**options, "device": "cpu"}).to(device)
        else:
            made = function(*given, **options)
        return made.pin_memory() if pin_memory else made

    return build


def _read_out(values: Any) -> Any:
    if isinstance(values, ShadowTensor):
        # dsv4prof: allow[DSV101,DSV102] as torch does with elements that are tensors; the shadow tells it
        return values.item() if values.numel() == 1 else values.tolist()
    if isinstance(values, (list, tuple)) and any(isinstance(one, (ShadowTensor, list, tuple)) for one in values):
        return [_read_out(one) for one in values]
    return values


def _read(function: _Function, world: World) -> _Function:
    def read(*args: Any, **options: Any) -> Any:
        if args and not isinstance(args[0], ShadowTensor):
            world.host_reads(args[0])
        return function(*args, **options)

    return read


def _product(function: _Function, world: World) -> _Function:
    """Backward of a product looks for zeros on the host; for subclasses of tensors torch takes another way."""

    def multiply(*args: Any, **options: Any) -> Any:
        result = function(*args, **options)
        if isinstance(result, ShadowTensor) and result.grad_fn is not None:
            reason = named("prod-backward", "backward of a product looks for zeros on the host")
            result.grad_fn.register_prehook(lambda grads: world.noted(reason, "aten::prod", ()))
        return result

    return multiply


def _attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """A torch built for CUDA asks the driver which kernel to take; this is the one without."""
    if attn_mask is not None and attn_mask.dtype is torch.bool:
        attn_mask = torch.zeros_like(attn_mask, dtype=query.dtype).masked_fill(~attn_mask, float("-inf"))
    compute = torch.ops.aten._scaled_dot_product_attention_math.default
    options = {"scale": scale, "enable_gqa": enable_gqa}
    result: torch.Tensor = compute(query, key, value, attn_mask, dropout_p, is_causal, None, **options)[0]
    return result


def _ctc_loss(log_probs: torch.Tensor, *args: Any, **options: Any) -> torch.Tensor:
    """The mean divides by the targets' lengths on the device, to which torch moves them."""
    given = dict(
        zip(("targets", "input_lengths", "target_lengths", "blank", "reduction", "zero_infinity"), args, strict=False)
    )
    given.update(options)
    lengths = given.get("target_lengths")
    if isinstance(log_probs, ShadowTensor) and isinstance(lengths, torch.Tensor):
        given["target_lengths"] = lengths.to(log_probs.device)
    # dsv4prof: allow[DSV101] what the program asked for; the shadow tells it
    return torch.nn.functional.ctc_loss(log_probs, **given)


def _type(self: torch.Tensor, dtype: Any = None, non_blocking: bool = False, **options: Any) -> Any:
    """`x.type("torch.cuda.FloatTensor")`, which a torch without CUDA refuses."""
    if dtype is None and isinstance(self, ShadowTensor):
        return self.inner.type().replace("torch.", "torch.cuda.", 1)
    if isinstance(dtype, str) and dtype.startswith("torch.cuda."):
        host = torch.empty(0).type(dtype.replace("torch.cuda.", "torch."))
        return self.to("cuda", host.dtype, non_blocking=non_blocking)
    return torch.Tensor.type(self, dtype, non_blocking=non_blocking, **options)


def _from_dlpack(world: World) -> _Function:
    def take(source: Any, **options: Any) -> Any:
        if isinstance(source, ShadowTensor):
            return world.wrap(inner_of(source).detach(), source.device.index)
        return torch.from_dlpack(source, **options)

    return take
