"""Torch's own warnings of synchronizing calls, heard by a handler of ours.

Mode and filters belong to the whole process, so the program may change them: they are armed again where it does, and
it is shown what it set itself. The mode "error" is never used, because a broad `except` swallows it. The warning comes
when the call has returned, and only in threads that Python started.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

from dsv4prof.model.syncs import Kind, Layer, Observation
from dsv4prof.sync.runtime.watch.hub import Hub, LayerMissingError
from dsv4prof.sync.runtime.watch.layers.patching import Patches

_SAYS = "called a synchronizing"
# What torch says once of the mode itself, which the program did not ask for.
_OF_THE_MODE = "ynchronization debug mode is a prototype"
_WARN = 1
_OBSERVED = Observation(
    layer="warn",
    kind=Kind.SYNC,
    direction="d2h",
    op="",
    reason="torch warns that the call waits for the device",
)
_CHANGES = ("filterwarnings", "simplefilter", "resetwarnings")


class WarnLayer:
    """See `hub.Hooked`."""

    name: Layer = "warn"

    def __init__(self, hub: Hub, *, vendor: str = "cuda", listener: Any = None) -> None:
        self._hub = hub
        self._patches = Patches()
        self._set_mode: Callable[[int], None] | None = None
        self._asked = 0
        self._arming = False

    def start(self) -> None:
        import torch

        # Not torch.cuda's: that would begin to use the device, which a program that forks must not.
        self._set_mode = getattr(torch._C, "_cuda_set_sync_debug_mode", None)
        ask = getattr(torch._C, "_cuda_get_sync_debug_mode", None)
        if self._set_mode is None or ask is None:
            raise LayerMissingError(
                "the layer warn needs a torch with CUDA or HIP: this one has no sync debug mode",
                hint="without a GPU use shadow tensors",
            )
        self._asked = ask()
        shown = "_showwarnmsg" if hasattr(warnings, "_showwarnmsg") else "showwarning"
        self._patches.wrap(warnings, shown, self._hearing)
        for name in _CHANGES:
            self._patches.wrap(warnings, name, self._rearming)
        for name in ("__enter__", "__exit__"):
            self._patches.wrap(warnings.catch_warnings, name, self._rearming)
        self._patches.set(torch.cuda, "set_sync_debug_mode", self._asks)
        self._patches.set(torch.cuda, "get_sync_debug_mode", lambda: self._asked)
        self.rearm()

    def stop(self) -> None:
        self._patches.undo()
        _remove_filter()
        if self._set_mode is not None:
            self._set_mode(self._asked)

    def rearm(self) -> None:
        """Our filter comes first, and the mode is on, unless the program wants errors: those are its own business."""
        if self._arming or self._set_mode is None:
            return
        self._arming = True
        try:
            if self._asked <= _WARN:
                self._set_mode(_WARN)
            if not _is_first():
                _remove_filter()
                _unwrapped(warnings.filterwarnings)("always", message=f".*?{_SAYS}", category=UserWarning)
        finally:
            self._arming = False

    def _asks(self, debug_mode: int | str) -> None:
        """In place of torch.cuda.set_sync_debug_mode. Raises RuntimeError as that does."""
        names = {"default": 0, "warn": 1, "error": 2}
        if isinstance(debug_mode, str):
            if debug_mode not in names:
                raise RuntimeError(f"debug_mode {debug_mode!r} is none of {', '.join(names)}")
            debug_mode = names[debug_mode]
        self._asked = int(debug_mode)
        if self._set_mode is not None:
            self._set_mode(max(_WARN, self._asked))

    def _hearing(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def heard(*args: Any, **kwargs: Any) -> Any:
            said = args[0] if args else kwargs.get("message")
            # `_showwarnmsg` is given an object that holds the warning, `showwarning` the warning itself.
            text = str(getattr(said, "message", said))
            if _SAYS not in text:
                return None if self._arming and _OF_THE_MODE in text else original(*args, **kwargs)
            self._hub.note(_OBSERVED)
            return original(*args, **kwargs) if self._asked == _WARN else None

        return heard

    def _rearming(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def changed(*args: Any, **kwargs: Any) -> Any:
            try:
                return original(*args, **kwargs)
            finally:
                self.rearm()

        return changed


def _unwrapped(function: Any) -> Any:
    return getattr(function, "__wrapped__", function)


def _is_ours(entry: Any) -> bool:
    pattern = entry[1]
    text = pattern if isinstance(pattern, str) else getattr(pattern, "pattern", "")
    return entry[0] == "always" and _SAYS in (text or "")


def _is_first() -> bool:
    return bool(warnings.filters) and _is_ours(warnings.filters[0])


def _remove_filter() -> None:
    for entry in [each for each in warnings.filters if _is_ours(each)]:
        warnings.filters.remove(entry)  # type: ignore[attr-defined]
    mutated = getattr(warnings, "_filters_mutated", None)
    if mutated is not None:
        mutated()
