"""The profiler manager: records a window of steps, saves it whole or says why not, and proves that it let go.

`record` is the way in for any script. torch is imported when a recording is made, not before.
"""

from __future__ import annotations

from dsv4prof.recorder.manager import Recorder
from dsv4prof.recorder.plan import RecordPlan
from dsv4prof.recorder.sessions import find_session, list_sessions, open_session
from dsv4prof.recorder.standalone import record
from dsv4prof.recorder.states import State

__all__ = ["RecordPlan", "Recorder", "State", "find_session", "list_sessions", "open_session", "record"]
