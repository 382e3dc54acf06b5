"""The use cases, each a function that returns a Report: the only maker of reports."""

from __future__ import annotations

from dsv4prof.api.analyzing import analyze
from dsv4prof.api.attaching import attach
from dsv4prof.api.configuring import settings_report
from dsv4prof.api.diagnosis import doctor
from dsv4prof.api.faults import profiler_doctor
from dsv4prof.api.merging import merge
from dsv4prof.api.running import run
from dsv4prof.api.sessions import sessions_list, sessions_prune, sessions_show

__all__ = [
    "analyze",
    "attach",
    "doctor",
    "merge",
    "profiler_doctor",
    "run",
    "sessions_list",
    "sessions_prune",
    "sessions_show",
    "settings_report",
]
