"""The shortest way into dsv4prof for the programs: a plan, and a manager as a server has one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dsv4prof.recorder.control import ProfilerManager
    from dsv4prof.recorder.plan import RecordPlan


def plan(**changes: Any) -> RecordPlan:
    """Record the CPU until stopped, without stacks."""
    from dsv4prof.recorder.plan import RecordPlan

    return RecordPlan(**{"active": None, "with_stack": False, "activities": "cpu", **changes})


@contextmanager
def serving(folder: Path) -> Iterator[ProfilerManager]:
    """A server's manager, of the thread that calls this."""
    from dsv4prof.recorder.control import ProfilerManager

    with ProfilerManager(root=folder, plan=plan()) as manager:
        yield manager
