"""What a profiler manager says of itself and of a recording: facts for a caller, a client or a log."""

from __future__ import annotations

import threading
from pathlib import Path

import msgspec

from dsv4prof.model.session import WindowRecord
from dsv4prof.recorder.manager import Recorder
from dsv4prof.recorder.plan import RecordPlan
from dsv4prof.recorder.sink import RankSink


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

    def __init__(self, plan: RecordPlan, folder: Path, sink: RankSink) -> None:
        self.plan = plan
        self.folder = folder
        self.sink = sink
        self.recorder: Recorder | None = None
        self.thread: int | None = None
        self.stop_asked = False
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
