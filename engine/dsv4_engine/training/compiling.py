"""Whether the training functions run as written or fused by torch.compile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeVar

import torch

Function = TypeVar("Function", bound=Callable[..., Any])
_enabled = False
_MOST_FORMS = 64


def compile_functions(enabled: bool) -> None:
    """Fuse them from now on (worth its minute of compilation on a GPU), or run them as written."""
    global _enabled
    _enabled = enabled
    if enabled:
        # A function is compiled for each shape and precision that the layers use it with.
        torch._dynamo.config.recompile_limit = _MOST_FORMS


@contextmanager
def as_written() -> Iterator[None]:
    """Nothing is fused inside of the context."""
    global _enabled
    before, _enabled = _enabled, False
    try:
        yield
    finally:
        _enabled = before


def compiled(function: Function) -> Function:
    return _fused(function) if _enabled else function


@cache
def _fused(function: Function) -> Function:
    fused: Function = torch.compile(function, dynamic=False)
    return fused
