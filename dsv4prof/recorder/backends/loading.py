"""What is optional is asked for by name, and its absence is one sentence that says what to do."""

from __future__ import annotations

import importlib
import sys
from contextlib import suppress
from typing import Any

from dsv4prof.errors import LifetimeError, MissingExtraError


def import_torch() -> Any:
    """torch, or one sentence that says what to install."""
    try:
        import torch
        import torch.profiler
    except ImportError as error:
        raise MissingExtraError("torch", "engine", purpose="recording") from error
    return torch


def require_gpu(torch: Any, purpose: str) -> None:
    """Raises LifetimeError where torch has no CUDA or HIP device: `purpose` begins the sentence."""
    if not torch.cuda.is_available():
        raise LifetimeError(
            f"{purpose} need a CUDA or HIP device, and torch sees none here",
            hint="record with activities='auto' or 'cpu'",
        )


_FIRST_PROFILERS = "torch._inductor.config"


def is_preloaded() -> bool:
    """Whether torch's first profiler finds its imports done."""
    return _FIRST_PROFILERS in sys.modules


def preload_profiler() -> None:
    """Import what torch's first profiler of a process imports: 1.4 s of its first start (torch 2.13: `prepare_trace`
    brings in torch._inductor, dynamo and sympy). On any thread; without torch, or with one that has no such part,
    nothing happens.
    """
    with suppress(ImportError, MissingExtraError):
        import_torch()
        importlib.import_module(_FIRST_PROFILERS)
