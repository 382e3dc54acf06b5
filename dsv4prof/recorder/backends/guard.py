"""A second torch profiler beside ours ends in a segmentation fault, and torch does not object to it.

Its start resets Kineto under us and its stop takes our results away. So while we hold Kineto nobody else gets to it: an
attempt is an exception in the program that made it, before anything is touched. Only profilers that go through
`torch.autograd.profiler.profile` are met, which are all that torch offers in Python; `emit_nvtx` and `emit_itt` are
refused by torch itself. A profiler that has stopped is out of reach of the others, also while it is exported or
destroyed (checked with both going on in threads of their own for hundreds of sessions, torch 2.13).
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

from dsv4prof.errors import LifetimeError
from dsv4prof.recorder.backends.prepared import any_prepared

_HINT = "two profilers at once end in a crash or in one lost trace: use one after the other"


class KinetoGuard:
    """Keeps every other profiler of the process out from `close` to `open`: from its preparation to its stop.

    It holds no reference to ours.
    """

    def __init__(self, torch: Any) -> None:
        self._kind = torch.autograd.profiler.profile
        self._ours: weakref.ref[object] | None = None
        self._wrappers: dict[str, tuple[Any, Any]] = {}

    def close(self, ours: object) -> None:
        """From now on only `ours`, a `torch.autograd.profiler.profile`, may be prepared, started and ended."""
        assert self._ours is None, "one recording at a time"
        self._ours = weakref.ref(ours)
        for name in ("_prepare_trace", "_start_trace"):
            self._wrap(name, _refuse)
        # What was refused has nothing to end, and its end would take our results.
        self._wrap("__exit__", lambda: False)

    def open(self) -> None:
        """Everybody may profile again. Idempotent; a patch that somebody laid over ours stays, and ours lets pass."""
        self._ours = None
        for name, (original, wrapper) in self._wrappers.items():
            if getattr(self._kind, name) is wrapper:
                setattr(self._kind, name, original)
        self._wrappers.clear()

    def _wrap(self, name: str, otherwise: Callable[[], object]) -> None:
        original = getattr(self._kind, name, None)
        if original is None:
            # The names are torch's own business; without one, what happens is still found when the recording stops.
            return

        @functools.wraps(original)
        def wrapper(profiler: object, *args: Any, **kwargs: Any) -> Any:
            if self._ours is not None and self._ours() is not profiler:
                return otherwise()
            return original(profiler, *args, **kwargs)

        self._wrappers[name] = (original, wrapper)
        setattr(self._kind, name, wrapper)


def refuse_foreign(torch: Any) -> None:
    """Raises LifetimeError when another profiler records in this process, or is prepared to.

    `_profiler_enabled` knows this thread only; the flag beside it is the process's, as old as torch.profiler's hooks.
    A profiler in the warm-up steps of its schedule shows in neither.
    """
    elsewhere = getattr(torch.autograd.profiler, "_is_profiler_enabled", False)
    if torch.autograd._profiler_enabled() or elsewhere:
        raise LifetimeError("another torch profiler is already recording in this process", hint=_HINT)
    if any_prepared(torch):
        raise LifetimeError(
            "another torch profiler is in the warm-up steps of its schedule in this process", hint=_HINT
        )


def _refuse() -> None:
    raise LifetimeError("another torch profiler cannot start while dsv4prof records", hint=_HINT)
