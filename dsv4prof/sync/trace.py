"""Host reads in a recorded trace, one finding a site, worst first.

A site is what a person would fix in one place: the same operators called in the same range by the same function.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from statistics import median

import msgspec

from dsv4prof.model.finding import Finding, Location, Severity, TraceSpan
from dsv4prof.model.trace import MergedTrace
from dsv4prof.rules import get
from dsv4prof.sync.allowances import KNOWN, Allowance, allow
from dsv4prof.sync.context import Frame
from dsv4prof.sync.cpu_reads import cpu_reads
from dsv4prof.sync.gpu_reads import gpu_reads
from dsv4prof.sync.read import Read
from dsv4prof.sync.site_facts import costs, counts
from dsv4prof.trace.index import RankIndex, TraceIndex

CPU_REASON = "CPU run: nothing blocks here; on a GPU each would"
# A mean so many times the median is decided by few waits.
_SKEWED = 3
_NOUNS = {"DSV106": "waits", "DSV108": "uploads", "DSV111": "stalls"}


class _Key(msgspec.Struct, frozen=True):
    code: str
    what: str
    ops: tuple[str, ...]
    region: str | None
    frame: Frame | None
    outside: bool


class _Seen(msgspec.Struct):
    reads: list[tuple[RankIndex, Read]] = []


def host_reads(source: MergedTrace | TraceIndex, allowances: Sequence[Allowance] = KNOWN) -> list[Finding]:
    """Sites in which the host reads the device, over all ranks.

    With device records the cost is the time blocked, a step (or in all when the trace has no steps). The sites are
    ordered by the time for which the device had nothing to do afterwards, which is what removing one can win, then by
    their cost. Without device records they are reads that would block on a GPU: cost None, ordered by reads a step.
    What `allowances` cover comes last, as notes.
    """
    index = source if isinstance(source, TraceIndex) else TraceIndex(source)
    measured = index.has_gpu
    sites: dict[_Key, _Seen] = {}
    for rank in index.ranks:
        for read in gpu_reads(rank) if measured else cpu_reads(rank):
            sites.setdefault(_key(rank, read), _Seen()).reads.append((rank, read))
    findings = [_finding(index, key, seen.reads, measured=measured) for key, seen in sites.items()]
    return allow(sorted(findings, key=_order), allowances)


def _key(rank: RankIndex, read: Read) -> _Key:
    context = read.context
    outside = bool(rank.steps) and rank.step_at(rank.slices[read.index].start_ns) is None
    return _Key(read.reading.code, read.reading.what, context.ops, context.region, context.frame, outside)


def _order(finding: Finding) -> tuple[int, float, float, float, str]:
    evidence = finding.evidence
    idle = evidence.get("gpu_idle_per_step_ns" if evidence["steps"] else "gpu_idle_ns")
    return (
        int(evidence["outside_steps"]),
        -(idle or 0),
        -(finding.cost_ns or 0),
        -(evidence["per_step"] or evidence["reads"]),
        finding.fingerprint,
    )


def _finding(index: TraceIndex, key: _Key, reads: list[tuple[RankIndex, Read]], *, measured: bool) -> Finding:
    evidence = {
        **counts(index, reads),
        "ops": list(key.ops),
        "region": key.region,
        "function": key.frame.function if key.frame else None,
        "def_line": key.frame.def_line if key.frame else None,
        "outside_steps": key.outside,
    }
    first = reads[0][1]
    certain = first.reading.certainty != "possible" or measured
    blocked = sum(read.blocked_ns or 0 for _, read in reads)
    steps: int = evidence["steps"]
    if measured:
        evidence |= costs(index, reads)
    else:
        evidence["certainty"] = first.reading.certainty
    per_call = evidence["per_call"]
    noun = _NOUNS.get(key.code, "host reads")
    evidence["what"] = key.what + (f": {per_call:g} {noun} a call" if per_call != 1 else "")
    message = evidence["what"] + _outlier(reads)
    return Finding(
        code=key.code,
        severity=get(key.code).severity if certain and not key.outside else Severity.NOTE,
        message=message + (" (outside a step)" if key.outside else ""),
        location=Location(key.frame.file, function=key.frame.function) if key.frame else None,
        span=_span(reads, measured=measured),
        evidence=evidence,
        cost_ns=(round(blocked / steps) if steps and not key.outside else blocked) if measured else None,
        cost_reason=("blocked host time a step" if steps and not key.outside else "blocked host time in all")
        if measured
        else CPU_REASON,
        fix=first.reading.fix,
        fingerprint=_fingerprint(key),
    )


def _outlier(reads: list[tuple[RankIndex, Read]]) -> str:
    """A mean that few waits decide (often the first step of each rank's recording) is not what every step pays."""
    waits = [read.blocked_ns or 0 for _, read in reads]
    mean, usual = sum(waits) / len(waits), median(waits)
    if len(waits) <= 3 or mean <= _SKEWED * usual:
        return ""
    return f"; few long waits decide the cost: median {usual / 1e6:,.3f} ms, mean {mean / 1e6:,.3f} ms"


def _span(reads: list[tuple[RankIndex, Read]], *, measured: bool) -> TraceSpan:
    """The longest wait, or the first read where nothing waits."""
    rank, read = max(reads, key=lambda pair: pair[1].blocked_ns or 0) if measured else reads[0]
    event = rank.slices[read.index]
    pid, tid = rank.place(read.index)
    return TraceSpan(rank.rank, event.start_ns, event.dur_ns, event.name, pid, tid)


def _fingerprint(key: _Key) -> str:
    """Independent of lines, times and counts."""
    frame = f"{key.frame.file}:{key.frame.function}" if key.frame else ""
    text = "|".join((key.code, frame, key.region or "", *key.ops))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
