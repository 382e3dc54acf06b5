"""Whether the host has read the same tensor before: the same memory, shape and version.

A version is torch's count of writes that it knows of. A replayed graph or a foreign kernel writes without it, so reads
are forgotten at the end of each region.
"""

from __future__ import annotations

from typing import Any

import msgspec

from dsv4prof.model.syncs import Kind, Observation
from dsv4prof.sync.runtime.calls import OpCall

_READS = frozenset(
    {"aten::_local_scalar_dense", "aten::item", "aten::_to_copy", "aten::nonzero", "aten::masked_select"}
)
_MOST = 4096


class Reads:
    """The reads of one region on one thread."""

    def __init__(self) -> None:
        self._seen: dict[tuple[Any, ...], Any] = {}

    def again(self, call: OpCall) -> bool:
        """Note a read; True when the same has been read before and the memory is still that tensor's."""
        if call.name not in _READS or not call.args:
            return False
        return self.read(call.args[0], call.name)

    def read(self, tensor: Any, what: str = "", *, counted: Any = None) -> bool:
        """As `again`; `counted` is the tensor that counts the writes, where that is another."""
        key = _identity(tensor, tensor if counted is None else counted)
        if key is None:
            return False
        key = (what, *key)
        known = self._seen.get(key)
        if known is not None and not known.expired():
            return True
        if len(self._seen) < _MOST:
            # A weak reference keeps the address from naming another tensor's memory.
            self._seen[key] = _weak(tensor)
        return False


def redundant(seen: Observation) -> Observation:
    """The same observation, of a value that the host has had."""
    said = f"{seen.reason}; the host read the same tensor before, and torch has not changed it since"
    return msgspec.structs.replace(seen, kind=Kind.REDUNDANT, reason=said)


def _identity(tensor: Any, counted: Any) -> tuple[Any, ...] | None:
    try:
        version = counted._version
        storage = tensor.untyped_storage()
    except (AttributeError, RuntimeError, NotImplementedError):
        # Made in inference mode, or of a kind without memory of its own.
        return None
    return (
        storage._cdata, tensor.storage_offset(), tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype, version,
    )  # fmt: skip


def _weak(tensor: Any) -> Any:
    from torch.multiprocessing.reductions import StorageWeakRef

    return StorageWeakRef(tensor.untyped_storage())
