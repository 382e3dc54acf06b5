"""The main job: serve on the embedded engine, record every rank, merge, and say what the steps spent their time on."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from dsv4prof.api.analyzing import explain
from dsv4prof.api.fault_record import fault_session, save_cpu_parts
from dsv4prof.api.merge_report import merge_check, plan_facts
from dsv4prof.api.merging import MergeRequest, merge_source
from dsv4prof.api.sources import Source, gather, resolve
from dsv4prof.api.texts import text_facts, text_sections
from dsv4prof.api.verdicts import verdict
from dsv4prof.api.words import plural
from dsv4prof.errors import InterruptedRunError, RankFailedError
from dsv4prof.model.finding import Finding, Severity
from dsv4prof.model.report import Check, Metric, Provenance, Report, Verdict
from dsv4prof.model.session import EndedBy, RankRecord, ReleaseProof, Session
from dsv4prof.target.launch import run as run_target
from dsv4prof.target.outputs import read_outputs
from dsv4prof.target.spec import RunSpec

Progress = Callable[[str], None]


def run(spec: RunSpec, *, fail_on: str = "never", progress: Progress = lambda event: None) -> Report | None:
    """Serve `spec` on the embedded engine; with `spec.profile` record every rank, merge and report.

    None on the ranks of torchrun that are not its first: that one reports for all.
    Under `spec.fault_watch` a rank that died or hung is not raised but reported, with exit status 1.
    Raises what `target.launch.run` raises, and InterruptedRunError for Ctrl-C while merging. Exit status 1 when a
    profiler could not be released, or by `fail_on`.
    """
    first = int(os.environ.get("RANK", "0")) == 0
    if first:
        progress(describe(spec))
    try:
        folder, session = run_target(spec, progress=progress)
    except RankFailedError as error:
        if not spec.fault_watch or error.session is None or not first:
            raise
        return _failed(error, Path(error.session), profiled=spec.profile)
    if not first:
        return None
    if not spec.profile:
        return _served(folder, session)
    try:
        return _profiled(folder, session, fail_on, progress)
    except KeyboardInterrupt:
        raise InterruptedRunError(
            "interrupted while merging; the ranks' traces are whole", hint=f"dsv4prof merge {session.id}"
        ) from None


def _failed(error: RankFailedError, folder: Path, *, profiled: bool) -> Report:
    """Under a fault watch a lost rank is what the run was for: the report says what is known of its end."""
    report = fault_session(folder, failure=error.message)
    parts = save_cpu_parts(folder) if profiled else []
    kept = [f"the CPU part of what was not saved, from the fault record: {', '.join(map(str, parts))}"] if parts else []
    again = f"dsv4prof fault show {folder}"
    return msgspec.structs.replace(
        report, notes=[*([error.hint] if error.hint else []), *kept, *report.notes, f"to read this again: {again}"]
    )


def describe(spec: RunSpec) -> str:
    """The run in one line, before it begins."""
    backend = {"cpu": "gloo", "cuda": "NCCL", "hip": "RCCL"}[spec.device]
    replicas = f"DP {spec.dp} x " if spec.dp > 1 else ""
    ranks = f"{replicas}TP {spec.tp} on {spec.device}" + (f" ({backend})" if spec.world > 1 else "")
    drafts = f"MTP {spec.num_drafts} drafts" if spec.num_drafts else "no MTP"
    return f"{spec.model}, {drafts}, {ranks}, {spec.requests} requests"


def _profiled(folder: Path, session: Session, fail_on: str, progress: Progress) -> Report:
    progress("merging")
    source = resolve([str(folder)], folder.parent)
    merged = merge_source(source, folder / source.merged_name, MergeRequest(check=True))
    progress("analysing")
    outputs = read_outputs(folder)
    insight = explain(gather(source).trace, session)
    findings = [*_release_findings(session), *insight.findings, *merged.findings(source)]
    released = _release_checks(session)
    held = [check for check in released if check.ok is False]
    judged = verdict(findings, fail_on)
    if held:
        judged = Verdict(exit_code=1, summary=held[0].message)
    return Report(
        kind="run",
        provenance=_provenance(session),
        checks=[_session_check(folder, session), *released, merge_check(merged), *_window_checks(source)],
        sections=[*insight.sections, *text_sections(outputs)],
        metrics=[*insight.metrics, *_throughput(session)],
        findings=findings,
        notes=[*_limit_notes(session), *insight.notes, *engine_notes(session.workload)],
        verdict=judged,
        next_command=_next(session, findings),
        data={
            **_run_facts(folder, session),
            **insight.facts,
            "ranks": plan_facts(merged.plan),
            "missing_ranks": merged.plan.missing_ranks,
            "merged": str(merged.path),
            "check": msgspec.to_builtins(merged.check),
            **text_facts(outputs),
        },
    )


def _served(folder: Path, session: Session) -> Report:
    """Without recording: how fast it was, nothing about why."""
    work, outputs = session.workload, read_outputs(folder)
    return Report(
        kind="run",
        provenance=_provenance(session),
        checks=[
            Check(
                key="served",
                ok=True,
                message=f"{folder}: {work['requests']} requests, {work.get('output_tokens')} tokens, not recorded",
            )
        ],
        sections=text_sections(outputs),
        metrics=_throughput(session, with_acceptance=True),
        notes=engine_notes(work),
        verdict=Verdict(exit_code=0, summary="served"),
        next_command=shlex.join(["dsv4prof", *(session.command[1:] or ["run"]), "--profile"]),
        data={**_run_facts(folder, session), "accept_length": work.get("accept_length"), **text_facts(outputs)},
    )


def engine_notes(facts: Mapping[str, Any]) -> list[str]:
    """What a reader of the figures has to know of the engine: caches, memory of graphs, text that means nothing."""
    notes = []
    if caches := facts.get("caches"):
        notes.append(
            f"caches a rank: {caches['bytes'] / 1e6:,.1f} MB for {plural(caches['requests'], 'request')}, "
            f"{caches['pages']:,} pages of {caches['page_size']:,} tokens, {caches['tails']:,} tails"
        )
    if graphs := facts.get("graph_memory"):
        size = sum(graph["bytes"] for graph in graphs)
        notes.append(f"graphs a rank: {plural(len(graphs), 'graph')}, {size / 1e6:,.1f} MB")
    if faults := facts.get("faults"):
        notes.append(f"faults on purpose: {', '.join(faults)}; tokens may be wrong")
    for reason, times in (facts.get("plan_fallbacks") or {}).items():
        notes.append(
            f"compress plans were made on the device {times:,} times although the host was to make them: {reason}"
        )
    if mean := facts.get("simulate_accept_len"):
        notes.append(f"accept lengths were simulated, {mean:g} on average: the text that was served means nothing")
    return notes


def _provenance(session: Session) -> Provenance:
    return Provenance(command="run", session=session.id, versions=session.versions, settings=session.settings)


def _session_check(folder: Path, session: Session) -> Check:
    size = sum(record.trace_bytes or 0 for record in session.ranks)
    steps = max((record.steps for record in session.ranks), default=0)
    recorded = [record for record in session.ranks if record.trace is not None]
    measured = [record for record in recorded if record.overhead is not None and record.overhead.ratio is not None]
    teller = next(iter([*measured, *recorded, *session.ranks]), None)
    overhead = _overhead_words(teller) if teller is not None else ""
    ranks = plural(len(session.ranks), "rank")
    if len(recorded) != len(session.ranks):
        ranks = f"{len(recorded)} of {ranks}"
    message = f"{folder}: {ranks}, {plural(steps, 'step')}, {size / 1e6:.1f} MB; {overhead}"
    return Check(key="session", ok=session.outcome.value == "complete", message=message)


def _overhead_words(record: RankRecord) -> str:
    overhead = record.overhead
    if overhead is None or overhead.ratio is None:
        return "profiler overhead not measured" + (f" ({overhead.reason})" if overhead else "")
    low, high = ((value or overhead.ratio) * 100 - 100 for value in (overhead.ratio_low, overhead.ratio_high))
    return (
        f"profiler overhead {overhead.ratio * 100 - 100:.0f} % (median of {overhead.matched} steps against the same "
        f"steps unprofiled; half of them {low:.0f} to {high:.0f} %)"
    )


def _release_checks(session: Session) -> list[Check]:
    """One line for all ranks when every profiler is gone, else one for each that is not."""
    proofs = [(record.coordinates.rank, proof) for record in session.ranks for proof in record.releases]
    held = [(rank, proof) for rank, proof in proofs if not proof.freed and not proof.kept]
    kept = [proof for _, proof in proofs if proof.kept]
    if kept and not held:
        bytes_held = sum(proof.held_bytes for proof in kept)
        return [Check(key="release", ok=None, message=_kept_words(len(kept), bytes_held))]
    if proofs and not held:
        returned = sum(max(0, proof.rss_before_bytes - proof.rss_after_bytes) for _, proof in proofs)
        pause = max(proof.collect_ns for _, proof in proofs)
        ranks = len({rank for rank, _ in proofs})
        windows = f", {plural(len(proofs), 'window')}" if len(proofs) > ranks else ""
        words = f"profiler released on {plural(ranks, 'rank')}{windows}: 0 holders left"
        memory = f"{returned / 1e6:.0f} MB of memory returned, gc.collect() took {pause / 1e6:.0f} ms"
        return [Check(key="release", ok=True, message=f"{words}, {memory}")]
    if not proofs:
        return [Check(key="release", ok=False, message="no rank reported that its profiler was released")]
    return [
        Check(key="release", ok=False, message=f"PROFILER NOT RELEASED on rank {rank}: held by {_holders(proof)}")
        for rank, proof in held
    ]


def _kept_words(count: int, held: int) -> str:
    return f"{plural(count, 'profiler')} kept on purpose until the processes ended (release=keep): {held / 1e6:.0f} MB"


def _limit_notes(session: Session) -> list[str]:
    """Windows that a limit ended, since a shorter trace explains itself otherwise; a sentence for ranks of one fate."""
    ranks: dict[str, list[str]] = {}
    for record in session.ranks:
        for window in record.windows:
            if window.ended_by in (EndedBy.SIZE_LIMIT, EndedBy.TIME_LIMIT):
                name = f", window {window.name}" if window.name else ""
                words = f"{name}: {window.reason} after {plural(window.steps, 'step')}"
                ranks.setdefault(words, []).append(str(record.coordinates.rank))
    return [f"{'rank' if len(who) == 1 else 'ranks'} {', '.join(who)}{words}" for words, who in ranks.items()]


def _window_checks(source: Source) -> list[Check]:
    """Whose figures follow, where there are several windows: read before them."""
    return [Check(key="window", ok=None, message=note) for note in source.notes]


def _holders(proof: ReleaseProof) -> str:
    return "; ".join(proof.holders) or f"somebody unknown ({proof.note or 'no holder was found'})"


def _release_findings(session: Session) -> list[Finding]:
    return [
        Finding(
            code="DSV002",
            severity=Severity.ERROR,
            message=f"the stopped profiler of rank {record.coordinates.rank} is still alive",
            evidence={"rank": record.coordinates.rank, "holders": record.release.holders},
            cost_reason="not a matter of time: a late destruction can crash the process (sglang #29202)",
            fix="drop the reference that the holder chain names",
            fingerprint=f"DSV002-{record.coordinates.rank}",
        )
        for record in session.ranks
        if record.release is not None and not record.release.freed and not record.release.kept
    ]


def _throughput(session: Session, *, with_acceptance: bool = False) -> list[Metric]:
    """Of the pass that was not recorded: what the profiler did not slow down."""
    work = session.workload
    rate, step = work.get("tokens_per_second"), (work.get("decode_step_ns") or {}).get("mean")
    metrics = [
        Metric("unprofiled.decode_step", "unprofiled: decode step", step, "ns", "mean, pass before the recording"),
        Metric("tokens_per_second", "tokens/s", None if rate is None else round(rate, 1), "tokens/s", "same pass"),
    ]
    if with_acceptance:
        accept = work.get("accept_length")
        reason = "bonus token included" if accept is not None else "no drafts"
        value = None if accept is None else round(accept, 4)
        metrics.append(Metric("accept_length", "accept length", value, "tokens", reason))
    return metrics


def _run_facts(folder: Path, session: Session) -> dict[str, Any]:
    return {
        "session": {"id": session.id, "path": str(folder), "outcome": session.outcome.value},
        "workload": session.workload,
        "tokens_sha256": session.workload.get("tokens_sha256"),
        "unprofiled_step_ns": session.workload.get("step_ns"),
        "release": [
            {"rank": record.coordinates.rank, **msgspec.to_builtins(record.release)}
            for record in session.ranks
            if record.release is not None
        ],
        "overhead": [
            {"rank": record.coordinates.rank, **msgspec.to_builtins(record.overhead)}
            for record in session.ranks
            if record.overhead is not None
        ],
    }


def _next(session: Session, findings: list[Finding]) -> str:
    """The same run with the fix, where there is one to try: another workload could not be compared."""
    if session.workload.get("exact_num_tokens") or not any(finding.code == "DSV105" for finding in findings):
        return f"dsv4prof analyze {session.id}"
    given = [word for word in session.command[1:] if word != "--no-exact-num-tokens"]
    return shlex.join(["dsv4prof", *(given or ["run", "--profile"]), "--exact-num-tokens"])
