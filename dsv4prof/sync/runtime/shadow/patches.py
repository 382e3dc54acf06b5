"""Attributes changed for a while; all come back in the end, also those that were not there."""

from __future__ import annotations

from typing import Any

_ABSENT = object()


class Patches:
    """`put` as often as needed, `undo` once."""

    def __init__(self) -> None:
        self._before: list[tuple[Any, str, Any]] = []

    def put(self, owner: Any, name: str, value: Any) -> None:
        """Only the owner's own attribute counts, so that what a class inherits is inherited again after `undo`."""
        self._before.append((owner, name, vars(owner).get(name, _ABSENT)))
        setattr(owner, name, value)

    def put_all(self, owner: Any, values: dict[str, Any]) -> None:
        for name, value in values.items():
            self.put(owner, name, value)

    def undo(self) -> None:
        while self._before:
            owner, name, value = self._before.pop()
            if value is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, value)
