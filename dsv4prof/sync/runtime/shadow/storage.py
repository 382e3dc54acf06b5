"""What `untyped_storage()` of a shadow gives: the host storage inside, saying `cuda`."""

from __future__ import annotations

from typing import Any

import torch

from dsv4prof.sync.runtime.reasons import named
from dsv4prof.sync.runtime.shadow import current


class ShadowStorage:
    """Answers what programs ask of a storage. Two of the same memory are equal, also by `_cdata`."""

    def __init__(self, inner: torch.UntypedStorage, device: torch.device) -> None:
        self.inner, self.device = inner, device
        self.is_cuda = True

    @property
    def _cdata(self) -> int:
        return self.inner._cdata

    def data_ptr(self) -> int:
        return self.inner.data_ptr()

    def nbytes(self) -> int:
        return self.inner.nbytes()

    size = nbytes
    __len__ = nbytes

    def element_size(self) -> int:
        return 1

    def get_device(self) -> int:
        return self.device.index or 0

    def cpu(self) -> torch.UntypedStorage:
        """A copy on the host."""
        current.note(named("cpu-method", "a blocking copy to the host"), "UntypedStorage.cpu", ())
        return self.inner.clone()

    def tolist(self) -> Any:
        current.note(named("tolist", "the whole storage is copied to the host"), "UntypedStorage.tolist", ())
        return self.inner.tolist()

    def clone(self) -> ShadowStorage:
        return ShadowStorage(self.inner.clone(), self.device)

    def copy_(self, source: Any, non_blocking: bool | None = None) -> ShadowStorage:
        """From another storage, as `copy_` of tensors of bytes, which is what torch does."""
        if isinstance(source, ShadowStorage):
            self.inner.copy_(source.inner)
            return self
        from dsv4prof.sync.runtime.shadow.tensor import ShadowTensor

        whole, given = (torch.empty(0, dtype=torch.uint8).set_(one) for one in (self.inner, source))
        ShadowTensor(whole, self.device).copy_(given, non_blocking=bool(non_blocking))
        return self

    def resize_(self, size: int) -> ShadowStorage:
        self.inner.resize_(size)
        return self

    def is_pinned(self, device: Any = None) -> bool:
        return False

    def fill_(self, value: int) -> ShadowStorage:
        self.inner.fill_(value)
        return self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ShadowStorage) and other._cdata == self._cdata

    def __hash__(self) -> int:
        return hash(self._cdata)
