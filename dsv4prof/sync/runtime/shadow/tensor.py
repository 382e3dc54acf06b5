"""A tensor that says it lies on a device and holds its values in host memory.

Views share the memory of what they view, so that a write through either is seen by both. Imports torch: import this
module inside functions only.
"""

from __future__ import annotations

from typing import Any

import torch

from dsv4prof.sync.runtime.reasons import named
from dsv4prof.sync.runtime.shadow import current
from dsv4prof.sync.runtime.shadow.storage import ShadowStorage

_no_torch_function = torch._C._disabled_torch_function_impl
_NUMPY = "can't convert {} device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host memory first."


class ShadowTensor(torch.Tensor):
    """`inner` is the host tensor with the values: detached, of the same shape, strides and memory order."""

    inner: torch.Tensor
    shadow_device: torch.device
    __torch_function__ = _no_torch_function

    @staticmethod
    def __new__(
        cls: type[ShadowTensor], inner: torch.Tensor, device: torch.device, *, guarded: bool = True
    ) -> ShadowTensor:
        """`guarded` False: C++ has no guard for CUDA, so it is told `meta`."""
        seen: torch.device | str = device if guarded else "meta"
        if inner.layout is torch.strided:
            made = torch.Tensor._make_wrapper_subclass(
                cls,
                inner.shape,
                strides=inner.stride(),
                storage_offset=inner.storage_offset(),
                dtype=inner.dtype,
                device=seen,
            )
        else:
            made = torch.Tensor._make_wrapper_subclass(
                cls, inner.shape, dtype=inner.dtype, layout=inner.layout, device=seen
            )
        made.inner, made.shadow_device = inner, device
        if inner.is_conj():
            torch._C._set_conj(made, True)
        if inner.is_neg():
            torch._C._set_neg(made, True)
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        from dsv4prof.sync.runtime.shadow.operators import run

        return run(func, types, args, kwargs or {}, current.device())

    @property
    def device(self) -> torch.device:
        return self.shadow_device

    @property
    def is_cuda(self) -> bool:
        return True

    @property
    def is_cpu(self) -> bool:
        return False

    @property
    def is_meta(self) -> bool:
        return False

    def get_device(self) -> int:
        return self.shadow_device.index or 0

    @property
    def data(self) -> torch.Tensor:
        # Not detach(): what is written through `.data` does not count as a change that backward minds.
        found: torch.Tensor = torch._C.TensorBase.data.__get__(self)
        return found

    @data.setter
    def data(self, value: torch.Tensor) -> None:
        if not isinstance(value, ShadowTensor):
            from dsv4prof.sync.runtime.shadow.moving import become

            become(self, value)
            return
        torch._C.TensorBase.data.__set__(self, value)
        self.inner = value.inner

    def data_ptr(self) -> int:
        return self.inner.data_ptr()

    def untyped_storage(self) -> Any:
        return ShadowStorage(self.inner.untyped_storage(), self.shadow_device)

    def storage(self) -> Any:
        return self.untyped_storage()

    def tolist(self) -> Any:
        if self.numel():
            current.note(named("tolist", "the whole tensor is copied to the host"), "Tensor.tolist", (self,))
        # dsv4prof: allow[DSV102] the host tensor inside
        return self.inner.tolist()

    def numpy(self, *, force: bool = False) -> Any:
        if not force:
            raise TypeError(_NUMPY.format(self.device))
        current.note(named("numpy-force", "a blocking copy to the host"), "Tensor.numpy", (self,))
        return self.inner.resolve_conj().resolve_neg().numpy().copy()

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise TypeError(_NUMPY.format(self.device))

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return self._formatted("format-str", "Tensor.__repr__", 15 if self.dim() else 2)

    def __format__(self, spec: str) -> str:
        if self.dim():
            return format(repr(self), spec) if not spec else object.__format__(self, spec)
        current.note(named("format-fstring", "formatting reads the value"), "Tensor.__format__", (self,))
        # dsv4prof: allow[DSV101] the host tensor inside
        return format(self.inner.item(), spec)

    def _formatted(self, form: str, op: str, times: int) -> str:
        text = "printing a tensor copies and reads it several times"
        if self.numel():
            current.note(named(form, text, times=times), op, (self,))
        with current.unseen():
            shown = torch._tensor_str._str(self.inner)
        tail = f", device='{self.device}'"
        tail += ", grad_fn=<...>" if self.grad_fn is not None else ", requires_grad=True" if self.requires_grad else ""
        return f"{shown[:-1]}{tail})"

    def record_stream(self, stream: Any) -> None:
        current.recorded(self, stream)

    def __copy__(self) -> Any:
        copied = self.detach()
        if isinstance(self, torch.nn.Parameter):
            return torch.nn.Parameter(copied, requires_grad=self.requires_grad)
        return copied.requires_grad_(self.requires_grad)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if id(self) in memo:
            return memo[id(self)]
        with torch.no_grad():
            copied = self.clone()
        if isinstance(self, torch.nn.Parameter):
            copied = torch.nn.Parameter(copied, requires_grad=self.requires_grad)
        elif self.requires_grad:
            copied.requires_grad_()
        memo[id(self)] = copied
        return copied

    def __reduce_ex__(self, protocol: Any) -> Any:
        if self.numel():
            current.note(named("serialize", "pickling copies the tensor to the host"), "Tensor.__reduce_ex__", (self,))
        arguments = (self.inner.clone(), self.dtype, str(self.device), self.requires_grad)
        return (torch._utils._rebuild_device_tensor_from_cpu_tensor, arguments)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        strides = None if self.is_contiguous() else tuple(s * self.element_size() for s in self.stride())
        kind = self.inner.numpy().dtype.str
        data = (self.data_ptr() if self.numel() else 0, False)
        return {"typestr": kind, "shape": tuple(self.shape), "strides": strides, "data": data, "version": 2}

    def __dlpack__(self, **options: Any) -> Any:
        return self.inner.__dlpack__()

    def __dlpack_device__(self) -> Any:
        return self.inner.__dlpack_device__()

    def share_memory_(self) -> ShadowTensor:
        return self

    def is_shared(self) -> bool:
        return True


def inner_of(value: Any) -> Any:
    """The host tensor inside a shadow; anything else as it is."""
    return value.inner if isinstance(value, ShadowTensor) else value


def memory_of(tensor: Any) -> tuple[int, int]:
    """Address and bytes of a tensor's storage; of a shadow those of the host tensor inside. (0, 0) without memory."""
    inner = inner_of(tensor)
    try:
        storage = inner.untyped_storage()
        return int(storage.data_ptr()), int(storage.nbytes())
    except (RuntimeError, NotImplementedError):
        # Sparse and meta tensors have no storage.
        return 0, 0


def follow(outer: ShadowTensor) -> None:
    """After an operator changed the shape of what is inside: tell C++ of the new shape."""
    inner = outer.inner
    if inner.layout is not torch.strided or _same_metadata(outer, inner):
        return
    guarded = torch._C.TensorBase.device.__get__(outer).type == "cuda"
    torch._C.TensorBase.data.__set__(outer, ShadowTensor(inner, outer.shadow_device, guarded=guarded))


def _same_metadata(left: torch.Tensor, right: torch.Tensor) -> bool:
    return (
        left.shape == right.shape
        and left.stride() == right.stride()
        and left.storage_offset() == right.storage_offset()
    )


__all__ = ["ShadowTensor", "follow", "inner_of", "memory_of"]
