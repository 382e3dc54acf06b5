"""What a program may do: levels by direction, as in JAX's transfer guard, and waits that are meant to be there."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, get_args

import msgspec

from dsv4prof.errors import Dsv4profError, UsageError
from dsv4prof.model.syncs import Direction, SyncEvent

Level = Literal["allow", "log", "disallow"]
DIRECTIONS: tuple[Direction, ...] = get_args(Direction)


class SyncDisallowedError(Dsv4profError):
    """The program waited for the device where it must not. `event` is the call, None where several broke a budget."""

    exit_code = 1

    def __init__(self, message: str, *, event: SyncEvent | None = None, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.event = event


class Levels(msgspec.Struct, frozen=True, kw_only=True):
    """A level for each direction; None leaves the decision to whoever is around."""

    d2h: Level | None = None
    h2d: Level | None = None
    explicit: Level | None = None
    alloc: Level | None = None

    def of(self, direction: Direction) -> Level | None:
        level: Level | None = getattr(self, direction)
        return level

    @property
    def says_nothing(self) -> bool:
        return all(self.of(direction) is None for direction in DIRECTIONS)


def levels(**given: str | None) -> Levels:
    """Levels by direction. Raises UsageError for an unknown level."""
    for direction, level in given.items():
        if level is not None and level not in get_args(Level):
            raise UsageError(f"{direction}={level!r} is no level", hint=f"one of {', '.join(get_args(Level))}")
    return Levels(**given)  # type: ignore[arg-type]


def disallowing(directions: Iterable[str]) -> Levels:
    """`disallow` for each direction named. Raises UsageError for an unknown one."""
    wanted = list(directions)
    for each in wanted:
        if each not in DIRECTIONS:
            raise UsageError(f"{each!r} is no direction of a sync", hint=f"one of {', '.join(DIRECTIONS)}")
    return levels(**dict.fromkeys(wanted, "disallow"))


class Allowance(msgspec.Struct, frozen=True, kw_only=True):
    """A wait that is intended: `times` calls in each entry of the region (None: any number), for that reason.

    `directions` empty means all of them.
    """

    reason: str
    times: int | None = 1
    directions: tuple[Direction, ...] = ()

    def covers(self, direction: Direction) -> bool:
        return not self.directions or direction in self.directions
