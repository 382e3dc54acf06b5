"""Lines for findings of a trace: torch records only where a function is defined, a dispatch mode sees who calls.

A finding and a call site belong together when the site's region is one of the finding's ranges and its operator is the
one that the finding's chain starts with.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from dsv4prof.model.finding import Finding, Location
from dsv4prof.model.session import CallSite

_REPEAT = "aten::repeat_interleave"


def join_call_sites(findings: Iterable[Finding], sites: Iterable[CallSite]) -> list[Finding]:
    """The findings, with file and line where exactly one call site fits; several are listed in the evidence."""
    known = list(sites)
    return [_joined(finding, known) for finding in findings]


def _joined(finding: Finding, sites: list[CallSite]) -> Finding:
    places = sorted({(site.file, site.line, site.function) for site in _matching(finding, sites)})
    if not places:
        return finding
    if len(places) > 1:
        evidence = {**finding.evidence, "call_sites": [f"{file}:{line}" for file, line, _ in places]}
        return msgspec.structs.replace(finding, evidence=evidence)
    file, line, function = places[0]
    return msgspec.structs.replace(finding, location=Location(file, line=line, function=function))


def _matching(finding: Finding, sites: list[CallSite]) -> list[CallSite]:
    ops = finding.evidence.get("ops") or []
    regions = {*finding.evidence.get("spans", ()), finding.evidence.get("region"), *finding.evidence.get("phases", ())}
    near = [site for site in sites if site.region in regions and _reads(site)]
    function = finding.evidence.get("function")
    for op in ops:
        fitting = [site for site in near if site.op == op]
        same = [site for site in fitting if site.function.rpartition(".")[2] == function]
        if fitting:
            return same or fitting
    return []


def _reads(site: CallSite) -> bool:
    """A repeat_interleave with output_size, or with an integer count, reads nothing back."""
    if site.op != _REPEAT:
        return True
    return site.overload.endswith("Tensor") and site.keywords.get("output_size", "None") == "None"
