"""The use cases, each a function that returns a Report: the only maker of reports.

They load when they are first asked for: a command imports what it needs.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dsv4prof.api.analyzing import analyze
    from dsv4prof.api.attaching import attach
    from dsv4prof.api.audit_tracing import audit_trace
    from dsv4prof.api.auditing import AuditRequest, audit_code
    from dsv4prof.api.benching import bench
    from dsv4prof.api.configuring import settings_report
    from dsv4prof.api.diagnosis import doctor
    from dsv4prof.api.fault_hanging import fault_hang
    from dsv4prof.api.fault_record import fault_show
    from dsv4prof.api.faults import profiler_doctor
    from dsv4prof.api.merging import merge
    from dsv4prof.api.narrowing import narrow
    from dsv4prof.api.querying import query, query_schema
    from dsv4prof.api.ruling import rule, rules_list
    from dsv4prof.api.running import run
    from dsv4prof.api.serving import serve
    from dsv4prof.api.sessions import sessions_list, sessions_prune, sessions_show
    from dsv4prof.api.truth import truth_compare, truth_list, truth_measure
    from dsv4prof.api.truth_checking import truth_check
    from dsv4prof.api.viewing import view
    from dsv4prof.api.waiting import Patience

_HOME = {
    "AuditRequest": "auditing",
    "Patience": "waiting",
    "analyze": "analyzing",
    "attach": "attaching",
    "audit_code": "auditing",
    "audit_trace": "audit_tracing",
    "bench": "benching",
    "doctor": "diagnosis",
    "fault_hang": "fault_hanging",
    "fault_show": "fault_record",
    "merge": "merging",
    "narrow": "narrowing",
    "profiler_doctor": "faults",
    "query": "querying",
    "query_schema": "querying",
    "rule": "ruling",
    "rules_list": "ruling",
    "run": "running",
    "serve": "serving",
    "sessions_list": "sessions",
    "sessions_prune": "sessions",
    "sessions_show": "sessions",
    "settings_report": "configuring",
    "truth_check": "truth_checking",
    "truth_compare": "truth",
    "truth_list": "truth",
    "truth_measure": "truth",
    "view": "viewing",
}

__all__ = [
    "AuditRequest",
    "Patience",
    "analyze",
    "attach",
    "audit_code",
    "audit_trace",
    "bench",
    "doctor",
    "fault_hang",
    "fault_show",
    "merge",
    "narrow",
    "profiler_doctor",
    "query",
    "query_schema",
    "rule",
    "rules_list",
    "run",
    "serve",
    "sessions_list",
    "sessions_prune",
    "sessions_show",
    "settings_report",
    "truth_check",
    "truth_compare",
    "truth_list",
    "truth_measure",
    "view",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
