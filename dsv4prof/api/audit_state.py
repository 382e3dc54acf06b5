"""Between the detector and the report: the findings that nobody has allowed, and what they were compared with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from dsv4prof.api.audit_changes import UNTOUCHED, Compared, audit_changes, beside, touches
from dsv4prof.api.audit_findings import gone_finding, idle_findings, source_findings
from dsv4prof.api.audit_running import run_audit
from dsv4prof.api.audit_targets import Targets
from dsv4prof.model.finding import SourceFinding
from dsv4prof.sync import baseline as baselines
from dsv4prof.sync.code.found import Audit, Found
from dsv4prof.sync.code.living.suppressions import Idle, Suppressed, sort_out
from dsv4prof.sync.code.options import AuditOptions

# A sync that a change took away without a proof that nothing needed it.
_REMOVED = "DSV205"
_TAKEN = ("fixed", "removed")


class Audited(msgspec.Struct, kw_only=True):
    """`findings` are those that no remark allows and no comparison knows, in order of place, `known` the others.

    `found` is what the detector said, by the finding's fingerprint; `touched` are the changed ranges (first, last) of
    each file where a revision was compared. `facts` are what machines ask for by name.
    """

    where: Targets
    audit: Audit
    findings: list[SourceFinding]
    suppressed: list[tuple[SourceFinding, Suppressed]]
    found: dict[str, Found]
    known: list[SourceFinding] = []
    touched: dict[str, list[tuple[int, int]]] = {}
    notes: list[str] = []
    facts: dict[str, Any] = {}


def look(where: Targets, options: AuditOptions, diff: str | None) -> Audited:
    """Run the detector and apply the remarks of the source. Raises as `run_audit` and `audit_changes`."""
    compared = audit_changes(where, options, diff) if diff is not None else None
    audit = compared.audit if compared is not None else run_audit(where, options)
    # All of them are named, because equal ones are told apart by their order, allowed ones included.
    made = source_findings(audit.found, where.shown, where.read)
    if compared is not None:
        made = [msgspec.structs.replace(f, status=s) for f, s in zip(made, compared.status, strict=True)]
    by_found = {id(found): finding for found, finding in zip(audit.found, made, strict=True)}
    remarks = sort_out(audit.found, audit.paths, where.read)
    audited = Audited(
        where=where,
        audit=audit,
        findings=[by_found[id(found)] for found in remarks.kept],
        suppressed=[(by_found[id(each.found)], each) for each in remarks.suppressed],
        found={finding.fingerprint: found for finding, found in zip(made, audit.found, strict=True)},
    )
    idle = remarks.idle
    if compared is not None:
        _keep_changes(audited, compared, diff or "")
        idle = _come(idle, compared)
    made = idle_findings(idle, where.shown)
    audited.findings += [msgspec.structs.replace(f, status="new") for f in made] if compared is not None else made
    return audited


def _come(idle: Sequence[Idle], compared: Compared) -> list[Idle]:
    """Remarks on touched code that allow nothing, and did not stand there and allow nothing before."""
    known = {path: Counter(texts) for path, texts in compared.stale.items()}
    come = []
    # Of equal ones those beside the change are the old ones.
    for each in sorted(idle, key=lambda each: touches(each, compared.touched.get(each.path, []))):
        ranges = compared.touched.get(each.path, [])
        if not touches(each, beside(ranges)):
            continue
        if known[each.path][each.remark.text] > 0:
            known[each.path][each.remark.text] -= 1
        elif touches(each, ranges):
            come.append(each)
    return come


def _keep_changes(audited: Audited, compared: Compared, revision: str) -> None:
    """What is on code that the change left alone is nobody's business here; what it took away is a finding."""
    audited.touched = compared.touched
    touched = [finding for finding in audited.findings if finding.status != UNTOUCHED]
    audited.suppressed = [pair for pair in audited.suppressed if pair[0].status != UNTOUCHED]
    audited.known = [finding for finding in touched if finding.status == "unchanged"]
    gone = [gone_finding(each, audited.where.shown) for each in compared.gone]
    gone = [msgspec.structs.replace(each, code=_REMOVED) if each.status == "removed" else each for each in gone]
    audited.findings = [*(finding for finding in touched if finding.status != "unchanged"), *gone]
    number = {word: sum(f.status == word for f in audited.findings) for word in ("new", "fixed", "removed")}
    audited.facts["changes"] = {
        "revision": revision,
        **number,
        "unchanged": len(audited.known),
        "unchanged_findings": msgspec.to_builtins(audited.known),
    }
    audited.notes += compared.notes


def compare_with(audited: Audited, baseline: baselines.Baseline) -> None:
    """Leave only what the baseline does not hold; tell what is gone from the code.

    What a change took away stays: no baseline holds what is not there.
    """
    taken = [finding for finding in audited.findings if finding.status in _TAKEN]
    comparison = baselines.compare([each for each in audited.findings if each.status not in _TAKEN], baseline)
    status = [finding.status for finding in comparison.findings]
    audited.known += [finding for finding in comparison.findings if finding.status != "new"]
    audited.findings = [*(finding for finding in comparison.findings if finding.status == "new"), *taken]
    looked_at = frozenset(audited.audit.paths)
    gone = [entry for entry in comparison.gone if _was_audited(audited, entry, looked_at)]
    number = {word: status.count(word) for word in ("new", "unchanged", "moved")}
    audited.facts["baseline"] = {**number, "gone": len(gone), "gone_entries": msgspec.to_builtins(gone)}
    held = f"in the baseline: {len(status) - number['new']:,}"
    audited.notes.append(held + (f", {number['moved']:,} of them at a new place" if number["moved"] else ""))
    if gone:
        audited.notes.append(
            f"{len(gone):,} of the baseline gone from the code; rewrite the baseline (--write-baseline)"
        )


def _was_audited(audited: Audited, entry: baselines.Entry, looked_at: frozenset[str]) -> bool:
    """Nothing is gone from a file that was not looked at; a file that is gone took its findings with it."""
    if "changes" in audited.facts:
        return False
    return entry.path in looked_at or not (audited.where.root / entry.path).exists()
