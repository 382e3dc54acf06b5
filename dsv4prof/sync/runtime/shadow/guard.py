"""Indexing a tensor that says `cuda` asks C++ for a device guard, which a torch without a device does not have.

Three ways, each verified: a guard made of the meta device's, which does nothing, entered in the table of guards that
libc10 exports; torch's own switch, which CUDA builds have; and where neither works none: then shadows lie on `meta` for
C++ and say `cuda` in Python only. Backward asks besides whether there is an accelerator.
"""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from dsv4prof.sync.runtime.shadow import tables

_GUARDS = "_ZN3c104impl26device_guard_impl_registryE"
_HOOKS = "_ZN2at6detail12getCUDAHooksEv"
_CUDA, _META = 1, 14
# Backward records events between its steps; here work is done at once, so they have nothing to do.
_EVENTS = ("record", "block", "destroyEvent")
_STREAMS = ("getStream", "exchangeStream")
# x86-64: movzwl %si,%eax; xor %edx,%edx; ret and mov %rsi,%rax; ret. aarch64: uxth w0,w1; mov x1,#0; ret and
# mov x0,x1; mov x1,x2; ret.
_CODE = {
    "x86_64": ("0fb7c631d2c3", "4889f0c3"),
    "aarch64": ("203c0053010080d2c0035fd6", "e00301aae10302aac0035fd6"),
}
_GUARD_HEADER = ("c10/core/impl/DeviceGuardImplInterface.h", "DeviceGuardImplInterface")
_HOOKS_HEADER = ("ATen/detail/AcceleratorHooksInterface.h", "AcceleratorHooksInterface")


class _Stream(ctypes.Structure):
    """c10::Stream."""

    _fields_ = (("device", ctypes.c_uint16), ("id", ctypes.c_int64))


_TypeOf = ctypes.CFUNCTYPE(ctypes.c_int8, ctypes.c_void_p)
_DeviceOf = ctypes.CFUNCTYPE(ctypes.c_uint16, ctypes.c_void_p)
_IsBuilt = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p)
_Nothing = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_StreamOf = ctypes.CFUNCTYPE(_Stream, ctypes.c_void_p, ctypes.c_uint16)
_HasContext = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p, ctypes.c_int8)


@contextmanager
def cuda_device_guard(index: Callable[[], int]) -> Iterator[bool]:
    """Whether C++ accepts tensors of CUDA within the block; what was there before comes back after it.

    index: the current device, asked where a program names none. On a machine with a device its own guard stays.
    """
    if torch.cuda.is_available():
        yield True
        return
    with _entered(_enter_own(index)):
        if _accepts():
            yield True
            return
    # Torch cannot take this back; without a device nobody needs that.
    switch = getattr(torch._C, "_ensureCUDADeviceGuardSet", None)
    if switch is not None:
        switch()
    yield _accepts()


@contextmanager
def accelerator() -> Iterator[None]:
    """C++ finds CUDA to be the accelerator within the block, with streams that exist: backward asks for both.

    Where this torch cannot be told so, backward ends with its error and all else works.
    """
    with _entered(None if torch.cuda.is_available() else _claim_cuda()):
        yield


@contextmanager
def _entered(undo: Callable[[], None] | None) -> Iterator[None]:
    try:
        yield
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
    try:
        guards = (ctypes.c_void_p * (_META + 1)).in_dll(tables.library("libc10.so"), _GUARDS)
    except (OSError, ValueError):
        return None
    meta = guards[_META]
    if not meta:
        return None
    places = tables.places(*_GUARD_HEADER)
    if not {"type", "getDevice", *_EVENTS, *_STREAMS} <= places.keys():
        return None
    type_of = tables.function_at(meta, places["type"], _TypeOf)
    device_of = tables.function_at(meta, places["getDevice"], _DeviceOf)
    if type_of(meta) != _META or device_of(meta) & 0xFF != _META:
        return None
    own: dict[int, Any] = {places[name]: _Nothing(lambda _: None) for name in _EVENTS}
    own[places["type"]] = _TypeOf(lambda _: _CUDA)
    own[places["getDevice"]] = _DeviceOf(lambda _: _CUDA | (index() & 0xFF) << 8)
    own.update(zip((places[name] for name in _STREAMS), _stream_functions(), strict=False))
    before = guards[_CUDA]
    guards[_CUDA] = tables.instance_of(tables.table_with(meta, own))

    def undo() -> None:
        guards[_CUDA] = before

    return undo


def _stream_functions() -> tuple[Any, ...]:
    """getStream, which gives a device's default stream, and exchangeStream, which gives back what it is given.

    They return two registers, which ctypes cannot. Empty on a machine for which there is no code; then backward, alone,
    does not work.
    """
    codes = _CODE.get(platform.machine(), ())
    try:
        functions = tuple(tables.machine_code(bytes.fromhex(code)) for code in codes)
    except OSError:
        # A hardened kernel lets nobody make memory executable.
        return ()
    if functions:
        wanted = _CUDA | 1 << 8
        stream = ctypes.cast(functions[0], _StreamOf)(None, wanted)
        if (stream.device, stream.id) != (wanted, 0):
            return ()
    return functions


def _claim_cuda() -> Callable[[], None] | None:
    """Let the hooks that stand for an absent CUDA say that it is built. Returns what takes that back."""
    try:
        asked = tables.library("libtorch_cpu.so")[_HOOKS]
    except (OSError, AttributeError):
        return None
    asked.restype = ctypes.c_void_p
    hooks, places = asked(), tables.places(*_HOOKS_HEADER)
    if not hooks or not {"isBuilt", "hasPrimaryContext"} <= places.keys():
        return None
    place = ctypes.cast(hooks, ctypes.POINTER(ctypes.c_void_p))
    before = place[0]
    own = {
        places["isBuilt"]: _IsBuilt(lambda _: True),
        places["hasPrimaryContext"]: _HasContext(lambda _, index: True),
    }
    place[0] = tables.table_with(hooks, own)

    def undo() -> None:
        place[0] = before

    return undo
