"""Indexing a tensor that says `cuda` asks C++ for a device guard, which a torch without a device does not have.

Three ways, each probed and verified: torch's own switch on CUDA builds; on CPU builds a guard made of the meta
device's, which does nothing, entered in the table of guards that libc10 exports; and where neither works none: then
shadows lie on `meta` for C++ and say `cuda` in Python only.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

_TABLE = "_ZN3c104impl26device_guard_impl_registryE"
_CUDA, _META = 1, 14
# Places in the table of a guard's virtual functions, whose first three are type, exchangeDevice and getDevice.
_TYPE, _GET_DEVICE = 0, 2
_BEFORE, _FUNCTIONS = 2, 40
_TypeOf = ctypes.CFUNCTYPE(ctypes.c_int8, ctypes.c_void_p)
_DeviceOf = ctypes.CFUNCTYPE(ctypes.c_uint16, ctypes.c_void_p)
# C++ may still ask a guard that was taken out of the table, so none is ever given back.
_kept: list[Any] = []


@contextmanager
def cuda_device_guard(index: Callable[[], int]) -> Iterator[bool]:
    """Whether C++ accepts tensors of CUDA within the block; what was there before comes back after it.

    index: the current device, asked where a program names none.
    """
    if _accepts():
        yield True
        return
    switch = getattr(torch._C, "_ensureCUDADeviceGuardSet", None)
    if switch is not None:
        switch()
        if _accepts():
            yield True
            return
    undo = _enter_own(index)
    try:
        yield undo is not None and _accepts()
    finally:
        if undo is not None:
            undo()


def _accepts() -> bool:
    """Index a tensor that says CUDA and holds nothing."""
    try:
        _probe((1,))[0]
    except (RuntimeError, NotImplementedError):
        return False
    return True


def _probe(shape: tuple[int, ...]) -> torch.Tensor:
    made: torch.Tensor = torch.Tensor._make_wrapper_subclass(_Probe, shape, dtype=torch.float32, device="cuda:0")
    return made


class _Probe(torch.Tensor):
    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> torch.Tensor:
        return _probe(())


def _enter_own(index: Callable[[], int]) -> Callable[[], None] | None:
    """Enter a guard for CUDA. Returns what takes it out again; None where libc10 is not as expected."""
    library = Path(torch.__file__).parent / "lib" / "libc10.so"
    try:
        table = (ctypes.c_void_p * (_META + 1)).in_dll(ctypes.CDLL(str(library)), _TABLE)
    except (OSError, ValueError):
        return None
    meta = table[_META]
    guard = _guard_like(meta, index) if meta else None
    if guard is None:
        return None
    before = table[_CUDA]
    table[_CUDA] = guard

    def undo() -> None:
        table[_CUDA] = before

    return undo


def _guard_like(meta: int, index: Callable[[], int]) -> int | None:
    """The address of a guard that does nothing, as meta's, and names CUDA. None where meta's looks different."""
    functions = ctypes.cast(meta, ctypes.POINTER(ctypes.c_void_p))[0]
    if not functions:
        return None
    first = functions - _BEFORE * ctypes.sizeof(ctypes.c_void_p)
    own = (ctypes.c_void_p * (_BEFORE + _FUNCTIONS)).from_buffer_copy(
        ctypes.string_at(first, (_BEFORE + _FUNCTIONS) * ctypes.sizeof(ctypes.c_void_p))
    )
    type_of = ctypes.cast(own[_BEFORE + _TYPE] or 0, _TypeOf)
    device_of = ctypes.cast(own[_BEFORE + _GET_DEVICE] or 0, _DeviceOf)
    if type_of(meta) != _META or device_of(meta) & 0xFF != _META:
        return None
    named = _TypeOf(lambda _: _CUDA), _DeviceOf(lambda _: _CUDA | (index() & 0xFF) << 8)
    own[_BEFORE + _TYPE] = ctypes.cast(named[0], ctypes.c_void_p).value
    own[_BEFORE + _GET_DEVICE] = ctypes.cast(named[1], ctypes.c_void_p).value
    guard = (ctypes.c_void_p * 1)(ctypes.addressof(own) + _BEFORE * ctypes.sizeof(ctypes.c_void_p))
    _kept.append((own, named, guard))
    return ctypes.addressof(guard)
