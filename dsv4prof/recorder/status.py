"""What a profiler manager says of itself and of a recording: facts for a caller, a client or a log."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Sequence
from pathlib import Path

import msgspec

from dsv4prof.model.session import WindowRecord
from dsv4prof.recorder.backends.kept import held_bytes
from dsv4prof.recorder.manager import Recorder
from dsv4prof.recorder.plan import RecordPlan
from dsv4prof.recorder.sink import RankSink

FORKED = "this process was forked from the manager's, and its recordings are the parent's"


class SessionResult(msgspec.Struct, frozen=True):
    """How one recording ended, for whoever asked for it.

    `session` is its folder, `files` are the traces in it. `outcome` is a word of `model.session.Outcome`, "recording"
    until all of it is saved; `ended_by` one of `EndedBy`, of the last window.
    """

    session: str
    outcome: str
    ended_by: str | None
    reason: str | None
    steps: int
    windows: list[WindowRecord]
    files: list[str]


class ManagerStatus(msgspec.Struct, frozen=True):
    """What the manager does now. `state` is idle, pending (asked for, waiting for a step), armed (waiting for its
    window) or recording; `saving` counts recordings that have ended and are being saved, whatever the state. `steps`
    counts recorded steps, `held_bytes` what profilers that were kept on purpose hold.
    """

    state: str
    session: str | None
    window: str | None
    steps: int
    total_steps: int
    saving: int
    profilers_alive: int
    held_bytes: int
    last: SessionResult | None


class ControlledSession:
    """One recording from the request to its result."""

    _count = itertools.count(1)

    def __init__(self, plan: RecordPlan, folder: Path, sink: RankSink) -> None:
        self.number = next(self._count)
        self.plan = plan
        self.folder = folder
        self.sink = sink
        self.recorder: Recorder | None = None
        self.thread: int | None = None
        self.stop_asked = False
        # Until torch's imports are done, which nobody's step should wait for.
        self.ready = False
        self.concluded = threading.Event()

    def result(self) -> SessionResult:
        """How it stands, or how it ended."""
        record = self.sink.record
        last = record.windows[-1] if record.windows else None
        return SessionResult(
            session=str(self.folder),
            outcome=record.outcome.value,
            ended_by=last.ended_by.value if last is not None and last.ended_by is not None else None,
            reason=record.reason,
            steps=record.steps,
            windows=record.windows,
            files=[str(self.folder / name) for name in record.traces],
        )


def state_of(session: ControlledSession | None) -> str:
    """The manager's state in a word."""
    if session is None:
        return "idle"
    if session.recorder is None:
        return "pending"
    return "recording" if session.recorder.window is not None else "armed"


def status_of(
    session: ControlledSession | None,
    saving: Sequence[ControlledSession],
    *,
    total_steps: int,
    last: SessionResult | None,
) -> ManagerStatus:
    """What the manager says of the session that it records and of those that it saves."""
    recorder = session.recorder if session is not None else None
    recorders = [each.recorder for each in (*saving, session) if each is not None and each.recorder is not None]
    return ManagerStatus(
        state=state_of(session),
        session=str(session.folder) if session is not None else None,
        window=recorder.window if recorder is not None else None,
        steps=recorder.record.steps + recorder.window_steps if recorder is not None else 0,
        total_steps=total_steps,
        saving=len(saving),
        profilers_alive=sum(each.profilers_alive for each in recorders),
        held_bytes=held_bytes(),
        last=last,
    )


def why_nothing_records(saving: Sequence[ControlledSession], last: SessionResult | None, *, here: bool) -> str:
    """For whoever asks to stop what is not recording."""
    if not here:
        return f"not recording: {FORKED}"
    if saving:
        return "not recording any more: the recording has ended and is being saved"
    if last is None:
        return "not recording: none began"
    how = f"ended by {last.ended_by}" if last.ended_by is not None else f"is {last.outcome}: {last.reason}"
    return f"not recording: the last recording {how}"
