"""Attributes of other modules replaced for a while, and put back as they were, whether inherited or own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_ABSENT = object()


class Patches:
    """`set` replaces, `undo` puts everything back, last first."""

    def __init__(self) -> None:
        self._done: list[tuple[Any, str, Any]] = []

    def set(self, owner: Any, name: str, value: Any) -> None:
        """Raises TypeError where the owner cannot be changed (a type written in C)."""
        own = vars(owner).get(name, _ABSENT)
        setattr(owner, name, value)
        self._done.append((owner, name, own))

    def wrap(self, owner: Any, name: str, make: Callable[[Any], Any]) -> bool:
        """Replace a function by `make(function)`; False where there is none or it cannot be replaced."""
        original = getattr(owner, name, None)
        if original is None:
            return False
        try:
            self.set(owner, name, make(original))
        except TypeError:
            return False
        return True

    def undo(self) -> None:
        while self._done:
            owner, name, own = self._done.pop()
            if own is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, own)
