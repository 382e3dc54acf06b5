"""Which host memory is pinned, which device memory a caching allocator would hold, and when a storage is given back."""

from __future__ import annotations

import bisect
import threading
import weakref
from collections.abc import Callable
from typing import Any

import torch

# Blocks up to this size share segments with others, which stay as long as one of them lives.
_SMALL_BYTES = 1 << 20
_GRAIN = 512


class Memory:
    """`freed(start, nbytes)` hears of every storage that was given back, in order."""

    def __init__(self, freed: Callable[[int, int], None]) -> None:
        self._freed = freed
        self._pinned: set[int] = set()
        self._known: dict[int, weakref.finalize[Any, Any]] = {}
        self._cached: list[int] = []
        # Beyond the limit, bytes, an allocation first gives back what is cached: `retried` hears of that.
        self.limit: int | None = None
        self.retried: Callable[[], None] = lambda: None
        self.allocated = self.peak = self.cached_bytes = self.peak_reserved = 0
        # A finalizer may run inside any of these methods, on the same thread.
        self._lock = threading.RLock()

    @property
    def reserved(self) -> int:
        return self.allocated + self.cached_bytes

    def is_pinned(self, tensor: torch.Tensor) -> bool:
        try:
            return tensor.untyped_storage()._cdata in self._pinned
        except (RuntimeError, NotImplementedError):
            # Sparse tensors have no storage.
            return False

    def pin(self, tensor: torch.Tensor) -> None:
        """The tensor's whole storage is page-locked from now on."""
        storage = tensor.untyped_storage()
        self._pinned.add(storage._cdata)
        self.watch(tensor)

    def watch(self, tensor: torch.Tensor, *, on_device: bool = False) -> None:
        """Tell when the storage of a host tensor (of a shadow: the one inside) is given back."""
        try:
            storage = tensor.untyped_storage()
        except (RuntimeError, NotImplementedError):
            return
        key = storage._cdata
        if key in self._known:
            return
        nbytes = storage.nbytes()
        with self._lock:
            self._known[key] = weakref.finalize(storage, self._gone, key, storage.data_ptr(), nbytes, on_device)
            self._known[key].atexit = False
            if on_device:
                self._allocate(nbytes)

    def empty_cache(self) -> bool:
        """Give back what no tensor uses. Whether there was anything, for only that waits."""
        with self._lock:
            held, self._cached, self.cached_bytes = bool(self._cached), [], 0
        return held

    def close(self) -> None:
        for finalizer in list(self._known.values()):
            finalizer.detach()
        self._known.clear()

    def _allocate(self, nbytes: int) -> None:
        size = -(-nbytes // _GRAIN) * _GRAIN
        if self.limit is not None and self.reserved + size > self.limit and not self._fits(size):
            self.retried()
        self.allocated += size
        self.peak = max(self.peak, self.allocated)
        if size > _SMALL_BYTES:
            place = bisect.bisect_left(self._cached, size)
            if place < len(self._cached):
                self.cached_bytes -= size
                left = self._cached.pop(place) - size
                if left > _SMALL_BYTES:
                    bisect.insort(self._cached, left)
                else:
                    self.cached_bytes -= left
        self.peak_reserved = max(self.peak_reserved, self.reserved)

    def _fits(self, size: int) -> bool:
        return size <= _SMALL_BYTES or (bool(self._cached) and self._cached[-1] >= size)

    def _gone(self, key: int, start: int, nbytes: int, on_device: bool) -> None:
        with self._lock:
            self._known.pop(key, None)
            self._pinned.discard(key)
            if on_device:
                size = -(-nbytes // _GRAIN) * _GRAIN
                self.allocated -= size
                if size > _SMALL_BYTES:
                    bisect.insort(self._cached, size)
                    self.cached_bytes += size
        self._freed(start, nbytes)
