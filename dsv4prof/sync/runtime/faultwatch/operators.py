"""Every operator that Python dispatches, written down before it runs: name, memory, stream.

This module imports torch when it is asked for a mode, never when it is imported.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import Any

from dsv4prof.faultrecord.layout import HOST, WRITTEN, Kind
from dsv4prof.faultrecord.ring import RingWriter
from dsv4prof.sync.runtime.faultwatch.buffers import BufferTable
from dsv4prof.sync.runtime.faultwatch.progress import Progress

# A list of a thousand tensors is told by its first ones.
_MOST_TOUCHES = 24


class LaunchState:
    """Where the program is: names of the ring, and the graph that is being captured (0: none)."""

    def __init__(self) -> None:
        self.step = -1
        self.phase = 0
        self.span = 0
        self.graph = 0


class LaunchNotes:
    """Writes launches with what they touch. `note` comes before the work, `back` after the host came back from it."""

    def __init__(self, ring: RingWriter, buffers: BufferTable, progress: Progress, state: LaunchState) -> None:
        import torch

        self._tensor = torch.Tensor
        self._ring = ring
        self._buffers = buffers
        self._progress = progress
        self._state = state
        self._described: dict[tuple[str, Any, Any], int] = {}

    def note(
        self,
        kind: Kind,
        touched: Iterable[tuple[str, int, Any]],
        *,
        operator: int = 0,
        kernel: int = 0,
        graph: int = 0,
        on_device: bool = False,
    ) -> tuple[int, int]:
        """A launch that is about to be made; its number and stream. `touched`: (name, flags, tensor or a list)."""
        touches: list[int] = []
        seen: list[tuple[int, Any, int]] = []
        for name, flags, value in touched:
            if isinstance(value, self._tensor):
                on_device |= value.is_cuda
                self._touch(name, flags, value, touches, seen)
            elif isinstance(value, (list, tuple)):
                for each in value[:_MOST_TOUCHES]:
                    if isinstance(each, self._tensor):
                        on_device |= each.is_cuda
                        self._touch(name, flags, each, touches, seen)
        state = self._state
        stream = self._progress.stream() if on_device else HOST
        number = self._ring.launch(
            kind, step=state.step, phase=state.phase, span=state.span, operator=operator, kernel=kernel, stream=stream,
            thread=threading.get_ident(), graph=graph or state.graph, touches=touches, captured=bool(state.graph),
        )  # fmt: skip
        for address, storage, description in seen:
            self._buffers.see(address, storage, number=number, description=description, operator=operator or kernel,
                              stream=stream, made=False)  # fmt: skip
        return number, stream

    def back(self, number: int, stream: int, operator: int, result: Any, *, mark: bool = False) -> None:
        """The call came back: its results are memory that is known from now on."""
        self._ring.returned(number)
        for each in result if isinstance(result, (list, tuple)) else (result,):
            if isinstance(each, self._tensor):
                storage = _storage(each)
                if storage is not None and not self._buffers.knows(storage.data_ptr()):
                    description = self._describe("result", each)
                    self._buffers.see(storage.data_ptr(), storage, number=number, description=description,
                                      operator=operator, stream=stream, made=True)  # fmt: skip
        if not self._state.graph:
            self._progress.launched(number, stream, mark=mark)

    def _touch(self, name: str, flags: int, tensor: Any, touches: list[int], seen: list[tuple[int, Any, int]]) -> None:
        storage = _storage(tensor)
        if storage is None:
            return
        description = self._describe(name, tensor)
        touches += (tensor.data_ptr(), _extent(tensor), description, flags)
        address = storage.data_ptr()
        if not self._buffers.knows(address):
            seen.append((address, storage, description))

    def _describe(self, name: str, tensor: Any) -> int:
        """`index int64[4, 128]`, as a name of the ring."""
        key = (name, tensor.dtype, tensor.shape)
        known = self._described.get(key)
        if known is None:
            dtype = str(tensor.dtype).removeprefix("torch.")
            known = self._described[key] = self._ring.name(f"{name} {dtype}{list(tensor.shape)}")
        return known


def operator_mode(ring: RingWriter, notes: LaunchNotes) -> Any:
    """A dispatch mode that notes each operator and lets it pass."""
    from torch.utils._python_dispatch import TorchDispatchMode

    forms: dict[Any, tuple[int, tuple[str, ...], dict[str, int]]] = {}

    class FaultWatchMode(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
            keywords = kwargs or {}
            form = forms.get(func)
            if form is None:
                form = forms[func] = _form(ring, func)
            operator, names, written = form
            touched = [(name, written.get(name, 0), value) for name, value in zip(names, args, strict=False)]
            touched += [(name, written.get(name, 0), value) for name, value in keywords.items()]
            device = keywords.get("device")
            on_device = device is not None and getattr(device, "type", str(device)[:4]) == "cuda"
            number, stream = notes.note(Kind.OPERATOR, touched, operator=operator, on_device=on_device)
            result = func(*args, **keywords)
            notes.back(number, stream, operator, result)
            return result

    return FaultWatchMode()


def _form(ring: RingWriter, func: Any) -> tuple[int, tuple[str, ...], dict[str, int]]:
    """The operator's name, its arguments' names, and which of them it writes."""
    schema = func._schema
    overload = func._overloadname
    name = schema.name + ("" if overload in ("", "default") else f".{overload}")
    written = {
        each.name: WRITTEN for each in schema.arguments if each.alias_info is not None and each.alias_info.is_write
    }
    return ring.name(name), tuple(each.name for each in schema.arguments), written


def _storage(tensor: Any) -> Any:
    """The tensor's storage; None where it has none that lies anywhere (sparse, meta, fake)."""
    try:
        storage = tensor.untyped_storage()
        return storage if storage.data_ptr() else None
    except (NotImplementedError, RuntimeError):
        return None


def _extent(tensor: Any) -> int:
    """From the first byte of a view to its last."""
    if tensor.is_contiguous():
        return int(tensor.nbytes)
    if not tensor.numel():
        return 0
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return int((last + 1) * tensor.element_size())
