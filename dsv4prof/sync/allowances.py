"""Syncs that a program means to have, told from accidental ones by declaration: a serving step waits once for its
results, and a report that calls this a finding every day is not read for long.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase

import msgspec

from dsv4prof.errors import UsageError
from dsv4prof.model.finding import Finding, Severity

_FORM = re.compile(
    r"(?P<code>DSV1\d\d)@(?P<where>[^\s:=]+)\s*(?:=\s*(?P<times>\d+(?:\.\d+)?)\s*)?(?::(?P<reason>.*))?", re.I
)
_HINT = "such as 'DSV106@read_tokens=1: the results of a step': code, place, times a step, reason"


class Allowance(msgspec.Struct, frozen=True):
    """`where` is a glob over the range, phase or function of a sync; `per_step` how many of them a step may have.

    In a trace without steps any number is meant.
    """

    code: str
    where: str
    reason: str
    per_step: float = 1.0

    def covers(self, finding: Finding) -> bool:
        """Whether it speaks of this site, however often that waits."""
        if finding.code != self.code:
            return False
        evidence = finding.evidence
        places = {
            evidence.get("region"),
            evidence.get("function"),
            *evidence.get("spans", ()),
            *evidence.get("phases", ()),
        }
        if finding.location is not None:
            places.add(finding.location.function)
        return any(fnmatchcase(place, self.where) for place in places if place)


# What the engines mean to do, by their own function and range names: the event behind a step's results.
KNOWN = (
    Allowance("DSV106", "read_tokens", "dsv4_engine: the tokens of a step, behind their event"),
    Allowance("DSV106", "process_batch_result_*", "SGLang: the results of a batch, behind copy_done"),
    Allowance("DSV106", "resolve_seq_lens_cpu", "SGLang: the host's copy of the lengths, behind its event"),
    Allowance(
        "DSV106", "synchronize_input_prep", "vLLM: input buffers are free again once the last step has read them"
    ),
)


def parse_allowance(text: str) -> Allowance:
    """`DSV106@read_tokens=1: reason` as an allowance. Raises UsageError; a reason is a must."""
    found = _FORM.fullmatch(text.strip())
    if found is None:
        raise UsageError(f"{text!r} allows nothing that can be understood", hint=_HINT)
    if not (found["reason"] or "").strip():
        raise UsageError(f"the allowance {text!r} gives no reason", hint=_HINT)
    return Allowance(found["code"].upper(), found["where"], found["reason"].strip(), float(found["times"] or 1))


def parse_allowances(text: str | None) -> tuple[Allowance, ...]:
    """Allowances between semicolons, before those that are known. Raises UsageError."""
    return (*(parse_allowance(part) for part in (text or "").split(";") if part.strip()), *KNOWN)


def allow(findings: Sequence[Finding], allowances: Sequence[Allowance]) -> list[Finding]:
    """The findings in their order, accidental ones first; an intended site is a note that says why.

    An allowance counts over all the sites that it covers, in the order given: what exceeds it is accidental.
    """
    left = {allowance: allowance.per_step for allowance in allowances}
    judged = [_judged(finding, left) for finding in findings]
    return sorted(judged, key=lambda finding: "allowed_by" in finding.evidence)


def _judged(finding: Finding, left: dict[Allowance, float]) -> Finding:
    for allowance in left:
        if not allowance.covers(finding):
            continue
        rate = finding.evidence.get("per_step")
        if rate is None or rate <= left[allowance]:
            left[allowance] -= rate or 0
            return msgspec.structs.replace(
                finding,
                severity=Severity.NOTE,
                message=f"{finding.message} (intended)",
                evidence={**finding.evidence, "allowed_by": allowance.reason},
            )
        note = f"{finding.message}; {allowance.per_step:g} a step is intended"
        return msgspec.structs.replace(
            finding, message=note, evidence={**finding.evidence, "allowed_per_step": allowance.per_step}
        )
    return finding
