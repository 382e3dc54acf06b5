"""A torch that has a sync debug mode and a GPU, as far as a watch asks: what a CPU wheel lacks."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch


class FakeDevice:
    """`waits()` behaves like a call that synchronizes: it warns where the mode says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.mode = 0
        monkeypatch.setattr(torch._C, "_cuda_set_sync_debug_mode", self._set, raising=False)
        monkeypatch.setattr(torch._C, "_cuda_get_sync_debug_mode", lambda: self.mode, raising=False)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "synchronize", lambda device=None: None)
        monkeypatch.setattr(torch.cuda.Event, "synchronize", lambda event: None)
        monkeypatch.setattr(torch.cuda.Stream, "synchronize", lambda stream: self.waits())
        monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)

    def _set(self, mode: int) -> None:
        self.mode = mode

    def waits(self, times: int = 1, *, depth: int = 2) -> Any:
        for _ in range(times):
            if self.mode:
                warnings.warn(
                    "called a synchronizing CUDA operation (Triggered internally)", UserWarning, stacklevel=depth
                )
