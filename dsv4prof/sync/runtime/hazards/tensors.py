"""What an operator does to memory: which of its tensors it reads and writes, and which bytes those are.

Imports torch, so it is itself only imported inside functions. It never reads a value and never waits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import torch

from dsv4prof.sync.runtime.calls import OpCall
from dsv4prof.sync.runtime.hazards.events import Span

InnerOf = Callable[[Any], Any]

# Only names memory, or makes some without touching it.
_TOUCHES_NOTHING = frozenset(
    {
        "aten::empty", "aten::empty_strided", "aten::empty_like", "aten::new_empty", "aten::new_empty_strided",
        "aten::is_pinned", "aten::set_", "aten::resize_", "aten::record_stream",
    }
)  # fmt: skip


class Memory(NamedTuple):
    """The storage of a tensor and the bytes of it that the tensor can name, counted from the storage's start."""

    start: int
    nbytes: int
    low: int
    high: int
    pitch: int
    width: int

    def span(self, buffer: int) -> Span:
        return Span(buffer, self.low, self.high, self.pitch, self.width)


class Effects(NamedTuple):
    """Tensors that an operator reads and writes. `fresh` ones among its results have memory of their own."""

    reads: list[Any]
    writes: list[Any]
    results: list[Any]
    touches: bool


class _Shape(NamedTuple):
    writes: tuple[bool, ...]
    names: tuple[str, ...]
    is_view: bool
    known: bool


def memory_of(tensor: Any, inner_of: InnerOf) -> Memory | None:
    """None for what has no memory: empty tensors, sparse and meta ones."""
    try:
        inner = inner_of(tensor)
        storage = inner.untyped_storage()
        start, nbytes = storage.data_ptr(), storage.nbytes()
    except RuntimeError:
        # Sparse, nested and meta tensors have no address of their own.
        return None
    if not start or not nbytes or not inner.numel():
        return None
    size = inner.element_size()
    if inner.is_contiguous():
        low = inner.storage_offset() * size
        return Memory(start, nbytes, low, low + inner.numel() * size, 0, 0)
    extents = sorted(
        ((stride, count) for stride, count in zip(inner.stride(), inner.shape, strict=True) if count > 1 and stride),
        reverse=True,
    )
    low = inner.storage_offset() * size
    elements = 1 + sum(stride * (count - 1) for stride, count in extents)
    high = low + elements * size
    if not extents:
        return Memory(start, nbytes, low, high, 0, 0)
    pitch = extents[0][0] * size
    width = (1 + sum(stride * (count - 1) for stride, count in extents[1:])) * size
    return Memory(start, nbytes, low, high, pitch, width) if width < pitch else Memory(start, nbytes, low, high, 0, 0)


def stream_number(stream: Any) -> int:
    """The stream's handle; default streams, whose handle is 0 on every device, are told apart by the device."""
    if not hasattr(stream, "cuda_stream"):
        # Operators get streams without the name of a device.
        ids = {name: getattr(stream, name) for name in ("stream_id", "device_index", "device_type")}
        stream = torch.cuda.Stream(**ids)
    return int(stream.cuda_stream) or -int(getattr(stream, "device_index", 0) or 0)


def is_dense(tensor: Any, inner_of: InnerOf) -> bool:
    return bool(inner_of(tensor).is_contiguous())


def effects_of(call: OpCall, result: Any) -> Effects:
    shape = _shape(call.name, call.overload)
    results = list(tensors_in(result))
    if call.name in _TOUCHES_NOTHING or shape.is_view:
        return Effects([], [], results, False)
    reads: list[Any] = []
    writes: list[Any] = []
    for name, position, value in _given(shape, call.args, call.kwargs):
        writing = shape.writes[position] if shape.known and position < len(shape.writes) else _looks_written(call, name)
        (writes if writing else reads).extend(tensors_in(value))
    return Effects(reads, writes, results, True)


def argument(call: OpCall, position: int, name: str, default: Any = None) -> Any:
    if len(call.args) > position:
        return call.args[position]
    return call.kwargs.get(name, default)


def tensors_in(value: Any) -> Iterator[Any]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from tensors_in(item)
    elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
        for item in value:
            yield from tensors_in(item)


def _given(shape: _Shape, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[tuple[str, int, Any]]:
    for position, value in enumerate(args):
        yield (shape.names[position] if position < len(shape.names) else "", position, value)
    for name, value in kwargs.items():
        yield name, shape.names.index(name) if name in shape.names else len(shape.names), value


def _looks_written(call: OpCall, name: str) -> bool:
    """An operator without a schema: by the manners of names."""
    return name.startswith("out")


@lru_cache(maxsize=4096)
def _shape(name: str, overload: str) -> _Shape:
    try:
        schema = torch._C._get_schema(name, "" if overload == "default" else overload)
        arguments = schema.arguments
        writes = tuple(bool(each.alias_info and each.alias_info.is_write) for each in arguments)
        aliases = [each.alias_info for each in schema.returns]
    except (AttributeError, RuntimeError):
        in_place = name.endswith("_") and not name.endswith("__")
        return _Shape((in_place,), ("self",), False, in_place)
    is_view = bool(aliases) and all(alias is not None and not alias.is_write for alias in aliases)
    return _Shape(writes, tuple(each.name for each in arguments), is_view and not any(writes), True)
