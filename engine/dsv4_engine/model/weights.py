"""Named access to a checkpoint's tensors, by the official DeepSeek-V4 names, in the precision each use asks for."""

from __future__ import annotations

from collections.abc import Mapping

import torch


class WeightReader:
    """Reads below one prefix. A missing name is a programming error: the loader has checked the checkpoint before."""

    def __init__(
        self, tensors: Mapping[str, torch.Tensor], *, device: torch.device, dtype: torch.dtype, prefix: str = ""
    ) -> None:
        self.device = device
        self.dtype = dtype
        self._tensors = tensors
        self._prefix = prefix

    def below(self, prefix: str) -> WeightReader:
        return WeightReader(self._tensors, device=self.device, dtype=self.dtype, prefix=f"{self._prefix}{prefix}.")

    def has(self, name: str) -> bool:
        return self._prefix + name in self._tensors

    def matrix(self, name: str) -> torch.Tensor:
        """A weight of a large matrix product, in the model's dtype."""
        return self._read(name).to(self.device, self.dtype)

    def precise(self, name: str) -> torch.Tensor:
        """A weight that the architecture applies in float32."""
        return self._read(name).to(self.device, torch.float32)

    def table(self, name: str) -> torch.Tensor:
        """An int64 look-up table."""
        return self._read(name).to(self.device, torch.int64)

    def _read(self, name: str) -> torch.Tensor:
        assert self.has(name), f"the weights lack {self._prefix}{name}"
        return self._tensors[self._prefix + name]
