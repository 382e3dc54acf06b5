"""The shadow device of this process: there is one at a time, and tensors that outlive it ask here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from dsv4prof.errors import LifetimeError

if TYPE_CHECKING:
    from dsv4prof.sync.runtime.calls import Reason
    from dsv4prof.sync.runtime.shadow.world import World

_worlds: list[World] = []


def device() -> World | None:
    """The one that is entered, None without one."""
    return _worlds[-1] if _worlds else None


def enter(world: World) -> None:
    """Raises LifetimeError where another one is entered."""
    if _worlds:
        raise LifetimeError("a shadow device is entered already", hint="leave the first one before the next")
    _worlds.append(world)


def leave() -> None:
    _worlds.clear()


def note(reason: Reason, op: str, tensors: Sequence[Any]) -> None:
    """A wait outside of operators. Silent without a device."""
    world = device()
    if world is not None:
        world.noted(reason, op, tensors)


def recorded(tensor: Any, stream: Any) -> None:
    """`tensor.record_stream(stream)`."""
    world = device()
    if world is not None:
        world.recorded_stream(tensor, stream)


@contextmanager
def unseen() -> Iterator[None]:
    """Nothing that happens in the block is of the program."""
    world = device()
    if world is None:
        yield
        return
    with world.unseen():
        yield
