"""Sums of device tensors that reach the host without a wait, even out of a program that a device-side assertion ends.

Each sum is copied to a word of pinned memory that held a sentinel. Reading that word never waits, and needs no event:
it is the sentinel until the copy has happened. What was queued before a faulty kernel arrives before the fault. Imports
torch, so it is itself only imported inside functions.
"""

from __future__ import annotations

import ctypes
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

_WORDS = 1024
_NOT_YET = -(1 << 62)
_PATIENCE_S = 1.0


class DeviceSums:
    """`dropped` counts sums that found no free word: the device was too far behind; `missing` are still under way."""

    def __init__(self) -> None:
        # Pinned at the first use: a watch must not be what initialises the device, before a program forks.
        self._words: torch.Tensor | None = None
        self._values: Any = None
        self._free = deque(range(_WORDS))
        self._waiting: deque[tuple[int, Callable[[int], None]]] = deque()
        self.dropped = 0

    def queue(self, tensor: Any, then: Callable[[int], None]) -> None:
        """Sum a tensor of integers behind what is queued; `then` hears of it in a later `collect`."""
        if torch.cuda.is_current_stream_capturing():
            return
        if self._words is None:
            with _disable_current_modes():
                self._words = torch.full((_WORDS,), _NOT_YET, dtype=torch.int64, pin_memory=True)
            self._values = (ctypes.c_int64 * _WORDS).from_address(self._words.data_ptr())
        if not self._free:
            self.collect()
        if not self._free:
            self.dropped += 1
            return
        word = self._free.popleft()
        self._values[word] = _NOT_YET
        with _disable_current_modes(), torch.no_grad():
            self._words[word].copy_(tensor.sum(dtype=torch.int64), non_blocking=True)
        self._waiting.append((word, then))

    @property
    def missing(self) -> int:
        return self.dropped + len(self._waiting)

    def collect(self) -> None:
        """Tell what has arrived, in order of queueing as far as it has."""
        for _ in range(len(self._waiting)):
            word, then = self._waiting.popleft()
            value = self._values[word]
            if value == _NOT_YET:
                self._waiting.append((word, then))
                continue
            self._free.append(word)
            then(value)

    def finish(self) -> None:
        """At the end: give what is queued a moment to arrive."""
        until = time.monotonic() + _PATIENCE_S
        self.collect()
        while self._waiting and time.monotonic() < until:
            time.sleep(0.002)
            self.collect()
