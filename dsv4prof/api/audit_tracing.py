"""The syncs of a recorded trace alone, ranked: what each blocked, how long the device idled after it, and what lead of
the host it cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dsv4prof import __version__
from dsv4prof.api.analyzing import call_sites, source_check
from dsv4prof.api.sources import gather, resolve
from dsv4prof.api.verdicts import verdict
from dsv4prof.api.words import plural
from dsv4prof.model.event import Slice
from dsv4prof.model.finding import Finding
from dsv4prof.model.report import Cell, Column, Provenance, Report, Section
from dsv4prof.sync.allowances import KNOWN, Allowance, parse_allowances
from dsv4prof.sync.join import join_call_sites
from dsv4prof.sync.trace import host_reads
from dsv4prof.trace.index import TraceIndex
from dsv4prof.trace.record_coverage import coverage_of

_COLUMNS = [
    Column("rank", "#", "count"),
    Column("code", "rule"),
    Column("idle_ns", "GPU idle after", "ns"),
    Column("blocked_ns", "blocked", "ns"),
    Column("median_ns", "median wait", "ns"),
    Column("lost_ns", "run-ahead lost", "ns"),
    Column("times", "times"),
    Column("what", "what"),
    Column("where", "where"),
    Column("calls", "runtime calls"),
    Column("ops", "operators"),
]


def audit_trace(
    inputs: Sequence[str],
    *,
    sessions_dir: Path = Path("traces/local"),
    window: str | None = None,
    allow: str | None = None,
    fail_on: str = "never",
) -> Report:
    """Every site at which the host waited in a session, a merged trace or rank files, worst first.

    Times are a step where the trace has steps, else in all. Raises as `analyze`.
    """
    allowances = parse_allowances(allow)
    source = resolve(inputs, sessions_dir, window=window)
    gathered = gather(source)
    index = TraceIndex(gathered.trace)
    reads = join_call_sites(host_reads(index, allowances), call_sites(source.session))
    intended = [read for read in reads if "allowed_by" in read.evidence]
    accidental = [read for read in reads if "allowed_by" not in read.evidence]
    findings = [*reads, *gathered.findings(source)]
    return Report(
        kind="audit-trace",
        provenance=Provenance(
            command="audit trace",
            inputs=list(inputs),
            session=source.session.id if source.session else None,
            versions={"dsv4prof": __version__},
        ),
        checks=[source_check(gathered, source)],
        sections=[
            *_section("syncs", "Syncs, worst first", accidental, index),
            *_section("intended", "Intended syncs", intended, index),
        ],
        findings=findings,
        notes=[*source.notes, *_notes(accidental, index), *_unknown(index), *_idle_allowances(allowances, reads)],
        verdict=verdict(findings, fail_on),
        next_command=f"dsv4prof rule {accidental[0].code}" if accidental else None,
        data={"sites": len(accidental), "intended": len(intended), "measured": index.has_gpu},
    )


def _section(key: str, title: str, reads: Sequence[Finding], index: TraceIndex) -> list[Section]:
    if not reads:
        return []
    columns = _COLUMNS if index.has_gpu else [each for each in _COLUMNS if not each.key.endswith(("_ns", "calls"))]
    if key == "intended":
        columns = [*columns, Column("why", "why")]
    rows = [{**_row(place, read), "why": read.evidence.get("allowed_by")} for place, read in enumerate(reads, 1)]
    return [Section(key=key, title=title, columns=columns, rows=rows, note=_unit(index))]


def _unit(index: TraceIndex) -> str:
    if not index.has_gpu:
        return "no device was recorded: nothing blocks here, on a GPU each would"
    each = "a step (in all where marked)" if index.steps else "in all: the trace has no steps"
    return f"times are {each}, mean over ranks; ranked by the time for which the device had nothing to do afterwards"


def _row(place: int, read: Finding) -> dict[str, Cell]:
    evidence = read.evidence
    per_step = bool(evidence.get("per_step")) and not evidence["outside_steps"]
    kinds = [kind for kind in evidence.get("step_kinds") or [] if kind]
    step = f"{kinds[0]} step" if len(kinds) == 1 else "step"
    return {
        "rank": place,
        "code": read.code,
        "idle_ns": evidence.get("gpu_idle_per_step_ns" if per_step else "gpu_idle_ns"),
        "blocked_ns": read.cost_ns,
        "median_ns": evidence.get("blocked_median_ns"),
        "lost_ns": evidence.get("run_ahead_lost_per_step_ns" if per_step else "run_ahead_lost_ns"),
        "times": f"{evidence['per_step']:g}/{step}" if per_step else f"{evidence['reads']:,} in all",
        "what": evidence["what"],
        "where": _where(read),
        "calls": ", ".join(f"{count:,} {name}" for name, count in evidence.get("runtime_calls", {}).items()),
        "ops": " > ".join(evidence["ops"]) or None,
    }


def _where(read: Finding) -> str | None:
    """File and line of the call; the line of the function's def where stacks alone are known; else the range."""
    place, def_line = read.location, read.evidence.get("def_line")
    if place is None:
        return read.evidence.get("region")
    file = Path(place.file).name
    if place.line is not None:
        return f"{place.function}, {file}:{place.line}" if place.function else f"{file}:{place.line}"
    return f"{place.function or ''}, {file}" + (f" (def at {def_line})" if def_line else "")


def _notes(accidental: Sequence[Finding], index: TraceIndex) -> list[str]:
    if not accidental:
        return ["no sync that is not intended"]
    if not index.has_gpu:
        return []
    span = sum(_length_ns(rank.slices) for rank in index.ranks)
    blocked = sum(read.evidence.get("blocked_ns") or 0 for read in accidental)
    share = f", {100 * blocked / span:.1f} % of the recorded time" if span else ""
    return [f"{plural(len(accidental), 'site')} blocked the host for {blocked / 1e6:,.3f} ms in all{share}"]


def _unknown(index: TraceIndex) -> list[str]:
    """Ranks whose device records do not tell when the device was idle."""
    return [told.text for told in map(coverage_of, index.ranks) if not told.complete]


def _idle_allowances(allowances: Sequence[Allowance], reads: Sequence[Finding]) -> list[str]:
    """Allowances that were given and speak of no sync here: a place that was renamed, or a slip of the pen."""
    return [
        f"the allowance {each.code}@{each.where} speaks of no sync of this trace"
        for each in allowances
        if each not in KNOWN and not any(each.covers(read) for read in reads)
    ]


def _length_ns(slices: Sequence[Slice]) -> int:
    return max((each.end_ns for each in slices), default=0) - min((each.start_ns for each in slices), default=0)
