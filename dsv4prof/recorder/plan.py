"""What to record, decided before anything runs: an impossible plan is refused when it is made."""

from __future__ import annotations

from typing import Literal

import msgspec

from dsv4prof.errors import UsageError

Activities = Literal["auto", "cpu", "cpu+gpu"]
_ACTIVITIES: tuple[Activities, ...] = ("auto", "cpu", "cpu+gpu")


class RecordPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A window of steps and what is noted in it.

    `wait` steps pass unrecorded, then `warmup` steps with the tracer prepared but silent (it costs time the first
    time), then `active` steps are recorded. `wait=None` leaves the place of the window to the target; a script's
    begins at once. Without any call of `step()` the whole block is recorded.
    `activities`: "auto" is the CPU and whatever accelerator torch can trace here.
    """

    wait: int | None = None
    warmup: int = 0
    active: int = 24
    with_stack: bool = True
    record_shapes: bool = False
    profile_memory: bool = False
    activities: Activities = "auto"

    def __post_init__(self) -> None:
        if self.wait is not None and self.wait < 0:
            raise UsageError(f"a recording cannot wait {self.wait} steps", hint="give 0 or more")
        if self.warmup < 0:
            raise UsageError(f"a recording cannot warm up for {self.warmup} steps", hint="give 0 or more")
        if self.active < 1:
            raise UsageError(f"a recording of {self.active} steps records nothing", hint="give 1 active step or more")
        if self.activities not in _ACTIVITIES:
            raise UsageError(
                f"unknown activities {self.activities!r}", hint="one of " + ", ".join(map(repr, _ACTIVITIES))
            )

    @property
    def first_step(self) -> int:
        """How many steps pass before the first recorded one."""
        return (self.wait or 0) + self.warmup

    @property
    def end_step(self) -> int:
        """The index of the first step after the window."""
        return self.first_step + self.active
