"""Where a recording that was asked for goes, and where in the program it begins."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from dsv4prof.model.session import RankCoordinates
from dsv4prof.recorder.agreement import agree_on_session
from dsv4prof.recorder.plan import RecordPlan
from dsv4prof.recorder.sessions import create_session, join_session
from dsv4prof.recorder.wording import writable


def counted_from(plan: RecordPlan, steps_so_far: int) -> RecordPlan:
    """`start_step` counts the program's steps; a recorder counts its own."""
    if plan.start_step is None:
        return plan
    ahead = max(0, plan.start_step - steps_so_far - plan.warmup)
    return msgspec.structs.replace(plan, start_step=None, wait=ahead)


def session_folder(
    plan: RecordPlan, me: RankCoordinates, root: Path, name: str, *, joined: Path | str | None = None
) -> Path:
    """The folder that all ranks of a launch record into: `joined` where it is named, or one that they agree on.

    Raises OutputError where it cannot be written, InputError where DSV4PROF_SESSION names none.
    """
    world = me.world_size or 1
    command = [writable(word) for word in sys.argv]
    facts = msgspec.to_builtins(plan)
    if joined is not None:
        return join_session(Path(joined).absolute(), world_size=world, command=command, plan=facts)
    return agree_on_session(
        me, root, lambda: create_session(root, name=name, world_size=world, command=command, plan=facts)
    )
