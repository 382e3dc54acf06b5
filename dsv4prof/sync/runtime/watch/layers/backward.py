"""What layers do round a backward of autograd, patched once for all of them.

Torch calls the engine by a name in two modules. Layers come and go in any order, so they share one replacement.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Any

from dsv4prof.sync.runtime.watch.layers.patching import Patches

Round = Callable[[], AbstractContextManager[Any]]

_rounds: tuple[Round, ...] = ()
_patches = Patches()


def enter_with(made: Round) -> None:
    """From now on `made()` is entered for each backward, on the thread that calls it."""
    global _rounds
    if not _rounds:
        import torch

        for owner in (torch.autograd.graph, torch.autograd):
            _patches.wrap(owner, "_engine_run_backward", _wrapped)
    _rounds = (*_rounds, made)


def no_more(made: Round) -> None:
    """Undo `enter_with`; nothing where it was not called."""
    global _rounds
    if made not in _rounds:
        return
    _rounds = tuple(each for each in _rounds if each != made)
    if not _rounds:
        _patches.undo()


def _wrapped(original: Any) -> Any:
    @functools.wraps(original)
    def runs(*args: Any, **kwargs: Any) -> Any:
        with ExitStack() as stack:
            for made in _rounds:
                stack.enter_context(made())
            return original(*args, **kwargs)

    return runs
