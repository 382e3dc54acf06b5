"""dsv4prof: find out why a DeepSeek-V4 MTP serving step is slower than it should be, and prove it.

The public names load on first use, so that importing the package costs nothing. PYTEST_DONT_REWRITE: a watched
pytest finds it imported already, and would warn.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from dsv4prof.api import analyze, doctor, merge, run
    from dsv4prof.errors import Dsv4profError
    from dsv4prof.model.finding import Finding
    from dsv4prof.model.report import Report
    from dsv4prof.model.session import Session
    from dsv4prof.recorder.control import ProfilerManager
    from dsv4prof.recorder.plan import RecordPlan
    from dsv4prof.recorder.standalone import record
    from dsv4prof.settings import load_plan
    from dsv4prof.sync.runtime.watch import SyncDisallowedError, SyncWatch, allow_syncs, region, step
    from dsv4prof.target.spec import RunSpec
    from dsv4prof.trace.load import load_rank

_HOMES = {
    "Dsv4profError": "dsv4prof.errors",
    "Finding": "dsv4prof.model.finding",
    "ProfilerManager": "dsv4prof.recorder.control",
    "RecordPlan": "dsv4prof.recorder.plan",
    "Report": "dsv4prof.model.report",
    "RunSpec": "dsv4prof.target.spec",
    "Session": "dsv4prof.model.session",
    "SyncDisallowedError": "dsv4prof.sync.runtime.watch",
    "SyncWatch": "dsv4prof.sync.runtime.watch",
    "allow_syncs": "dsv4prof.sync.runtime.watch",
    "analyze": "dsv4prof.api",
    "doctor": "dsv4prof.api",
    "load_plan": "dsv4prof.settings",
    "load_rank": "dsv4prof.trace.load",
    "merge": "dsv4prof.api",
    "record": "dsv4prof.recorder.standalone",
    "region": "dsv4prof.sync.runtime.watch",
    "run": "dsv4prof.api",
    "step": "dsv4prof.sync.runtime.watch",
}
__all__ = [
    "Dsv4profError",
    "Finding",
    "ProfilerManager",
    "RecordPlan",
    "Report",
    "RunSpec",
    "Session",
    "SyncDisallowedError",
    "SyncWatch",
    "allow_syncs",
    "analyze",
    "doctor",
    "load_plan",
    "load_rank",
    "merge",
    "record",
    "region",
    "run",
    "step",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'dsv4prof' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
