"""What a rank's file no longer holds: a trace that lost a kernel is not whole, even when its text reads well."""

from __future__ import annotations

from typing import Protocol

from dsv4prof.model.trace import Dropped


class Told(Protocol):
    """What a rank tells of its own faults."""

    @property
    def complete(self) -> bool: ...

    @property
    def notes(self) -> list[str]: ...

    @property
    def dropped(self) -> list[Dropped]: ...


def losses(rank: Told) -> list[str]:
    """A sentence for everything that was cut, mended, contradictory or left out; empty for a whole rank.

    What says nothing about the recording (arrow ends that Kineto writes for calls that launch nothing) is not in it.
    """
    cut = [] if rank.complete or rank.notes else ["the file ends early"]
    left_out = [f"{d.count:,} left out: {d.reason}" for d in rank.dropped if d.count and not d.harmless]
    return [*cut, *rank.notes, *left_out]
