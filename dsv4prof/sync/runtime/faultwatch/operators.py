"""Every operator that Python dispatches, written down before it runs: name, memory, stream.

This module imports torch when it is asked for a mode, never when it is imported.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from threading import get_ident
from typing import Any

from dsv4prof.faultrecord.layout import HOST, WRITTEN, Kind
from dsv4prof.faultrecord.ring import RingWriter
from dsv4prof.sync.runtime.faultwatch.buffers import BufferTable
from dsv4prof.sync.runtime.faultwatch.progress import Progress

# A list of a thousand tensors is told by its first ones.
_MOST_TOUCHES = 24
# What a tensor without memory of its own raises (NotImplementedError is one): sparse, meta, fake.
_NO_STORAGE = RuntimeError
_Form = tuple[int, tuple[str, ...], tuple[int, ...], dict[str, int], bool]


class LaunchState:
    """Where the program is: names of the ring, and the graph that is being captured (0: none)."""

    def __init__(self) -> None:
        self.step = -1
        self.phase = 0
        self.span = 0
        self.graph = 0


class LaunchNotes:
    """Writes launches with what they touch. `note` comes before the work, `back` after the host came back from it.

    Both are called for every operator: what looks repeated here was measured.
    """

    def __init__(self, ring: RingWriter, buffers: BufferTable, progress: Progress, state: LaunchState) -> None:
        import torch

        self._tensor = torch.Tensor
        self._ring = ring
        self._buffers = buffers
        self._live = buffers.live
        self.progress = progress
        self._state = state
        self._described: dict[tuple[str, Any, Any], int] = {}

    def note(
        self,
        kind: Kind,
        names: Iterable[str],
        flags: Iterable[int],
        values: Iterable[Any],
        *,
        operator: int = 0,
        kernel: int = 0,
        graph: int = 0,
        on_device: bool = False,
    ) -> tuple[int, int]:
        """A launch that is about to be made; its number and stream. `values` are tensors, lists of them, or others."""
        touches: list[int] = []
        seen: list[tuple[int, Any, int]] = []
        tensor = self._tensor
        for name, flag, value in zip(names, flags, values, strict=False):
            if isinstance(value, tensor):
                on_device = self._touch(name, flag, value, touches, seen) or on_device
            elif isinstance(value, (list, tuple)):
                for each in value[:_MOST_TOUCHES]:
                    if isinstance(each, tensor):
                        on_device = self._touch(name, flag, each, touches, seen) or on_device
        state = self._state
        stream = self.progress.stream() if on_device else HOST
        number = self._ring.launch(
            kind, step=state.step, phase=state.phase, span=state.span, operator=operator, kernel=kernel, stream=stream,
            thread=get_ident(), graph=graph or state.graph, touches=touches, captured=state.graph != 0,
        )  # fmt: skip
        for address, storage, description in seen:
            self._buffers.see(address, storage, number=number, description=description, operator=operator or kernel,
                              stream=stream, made=False)  # fmt: skip
        return number, stream

    def back(self, number: int, stream: int, operator: int, result: Any, *, mark: bool = False) -> None:
        """The call came back: its results are memory that is known from now on."""
        self._ring.returned(number)
        if isinstance(result, self._tensor):
            self._made(number, stream, operator, result)
        elif isinstance(result, (list, tuple)):
            for each in result:
                if isinstance(each, self._tensor):
                    self._made(number, stream, operator, each)
        if stream != HOST and not self._state.graph:
            self.progress.launched(number, stream, mark=mark)

    def _made(self, number: int, stream: int, operator: int, result: Any) -> None:
        try:
            storage = result.untyped_storage()
            address = storage.data_ptr()
        except _NO_STORAGE:
            return
        if address not in self._live:
            self._buffers.see(address, storage, number=number, description=self._describe("result", result),
                              operator=operator, stream=stream, made=True)  # fmt: skip

    def _touch(self, name: str, flags: int, tensor: Any, touches: list[int], seen: list[tuple[int, Any, int]]) -> bool:
        """Add a tensor; whether it lies on a device."""
        try:
            storage = tensor.untyped_storage()
            address = storage.data_ptr()
        except _NO_STORAGE:
            return False
        if address:
            description = self._describe(name, tensor)
            extent = tensor.nbytes if tensor.is_contiguous() else _extent(tensor)
            touches += (tensor.data_ptr(), extent, description, flags)
            if address not in self._live:
                seen.append((address, storage, description))
        return bool(tensor.is_cuda)

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

    forms: dict[Any, _Form] = {}

    class FaultWatchMode(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
            keywords = kwargs or {}
            form = forms.get(func)
            if form is None:
                form = forms[func] = _form(ring, func)
            operator, names, flags, of_keyword, launches = form
            if not launches:
                return func(*args, **keywords)
            on_device = False
            values: Sequence[Any] = args
            if keywords:
                device = keywords.get("device")
                on_device = device is not None and getattr(device, "type", str(device)[:4]) == "cuda"
                names = (*names[: len(args)], *keywords)
                flags = (*flags[: len(args)], *(of_keyword.get(name, 0) for name in keywords))
                values = (*args, *keywords.values())
            number, stream = notes.note(Kind.OPERATOR, names, flags, values, operator=operator, on_device=on_device)
            result = func(*args, **keywords)
            notes.back(number, stream, operator, result)
            return result

    return FaultWatchMode()


def _form(ring: RingWriter, func: Any) -> _Form:
    """The operator's name, its arguments' names, which of them it writes, and whether it can launch anything."""
    schema = func._schema
    overload = func._overloadname
    name = schema.name + ("" if overload in ("", "default") else f".{overload}")
    flags = {
        each.name: WRITTEN if each.alias_info is not None and each.alias_info.is_write else 0
        for each in schema.arguments
    }
    # A view gives back its argument's memory and writes none: there is nothing to launch.
    aliases = [each.alias_info for each in schema.returns]
    view = bool(aliases) and all(each is not None and not each.is_write for each in aliases)
    return ring.name(name), tuple(flags), tuple(flags.values()), flags, not view


def _extent(tensor: Any) -> int:
    """From the first byte of a strided view to its last."""
    if not tensor.numel():
        return 0
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return int((last + 1) * tensor.element_size())
