"""Profile a running server: who it is, what its ranks recorded, and what their steps spent their time on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from dsv4prof import __version__
from dsv4prof.api.analyzing import Insight, explain
from dsv4prof.api.merge_report import merge_check, plan_facts
from dsv4prof.api.merging import Merged, MergeRequest, merge_source
from dsv4prof.api.sources import Source, gather, resolve
from dsv4prof.api.verdicts import verdict
from dsv4prof.api.words import plural
from dsv4prof.errors import InputError, InterruptedRunError
from dsv4prof.model.finding import Finding
from dsv4prof.model.report import Check, Metric, Provenance, Report, Verdict
from dsv4prof.rules import get
from dsv4prof.target.remote.attach import Attached, attach_sglang
from dsv4prof.target.remote.client import Client, UrlClient
from dsv4prof.target.remote.facts import ask_facts
from dsv4prof.target.remote.interrupts import interruptible
from dsv4prof.target.remote.local import only_one
from dsv4prof.target.remote.others import attach_folder, attach_own
from dsv4prof.target.remote.spec import AttachSpec

Progress = Callable[[str], None]


class _Part(msgspec.Struct, frozen=True, kw_only=True):
    """One window of all ranks, merged and explained."""

    window: str
    source: Source
    merged: Merged
    insight: Insight


def attach(
    spec: AttachSpec,
    *,
    fail_on: str = "never",
    progress: Progress = lambda event: None,
    client: Client | None = None,
) -> Report:
    """Record the server at `spec.url`, merge and report.

    Exit status 1 when a rank is missing or its trace is not whole, or by `fail_on`. Raises NoAnswerError, UsageError,
    OutputError, LifetimeError, InputError and InterruptedRunError as `target.remote` says; never leaves the server
    profiling.
    """
    server = client or UrlClient(spec.url, api_key=spec.api_key)
    verdict([], fail_on)
    attached: Attached | None = None
    try:
        with interruptible(), only_one(server.url):
            facts = ask_facts(server)
            progress(f"{server.url}: {facts.words()}")
            how = {"sglang": attach_sglang, "dsv4prof": attach_own}.get(facts.kind, attach_folder)
            attached = how(server, facts, spec, progress)
        with interruptible():
            return _report(server.url, attached, *_parts(attached, progress), fail_on)
    except KeyboardInterrupt:
        if attached is None:
            raise InterruptedRunError("interrupted before anything was recorded") from None
        raise InterruptedRunError(
            "interrupted while merging; the ranks' traces are kept", hint=f"dsv4prof merge {attached.session.id}"
        ) from None


def _parts(attached: Attached, progress: Progress) -> tuple[list[_Part], list[Finding]]:
    """Each window by itself: two windows of one rank are not one recording. Also those that nobody can read."""
    folder, session = attached.folder, attached.session
    names = dict.fromkeys(window.name for record in session.ranks for window in record.windows if window.trace)
    parts, lost = [], []
    for name in names:
        progress("merging" + (f" {name}" if name else ""))
        source = resolve([str(folder)], folder.parent, window=name)
        target = folder / source.merged_name
        try:
            merged = merge_source(source, target, MergeRequest(check=True))
        except InputError as error:
            # One window's file must not cost the report of the others, nor the only one's the report of its loss.
            lost.append(_unreadable(name, error))
            continue
        parts.append(
            _Part(window=name, source=source, merged=merged, insight=explain(gather(source).trace, session))
        )
    return parts, lost


def _unreadable(window: str, error: InputError) -> Finding:
    return Finding(
        code="DSV503",
        severity=get("DSV503").severity,
        message=f"{window}: {error.message}" if window else error.message,
        evidence={"window": window, "hint": error.hint or ""},
        cost_reason="not a matter of time",
        fingerprint=f"DSV503-{window}",
    )


def _report(url: str, attached: Attached, parts: list[_Part], lost: list[Finding], fail_on: str) -> Report:
    session, many = attached.session, len(parts) > 1
    findings = [*lost, *(_named(finding, part.window, many) for part in parts for finding in _findings(part))]
    whole = not lost and all(part.merged.whole for part in parts) and session.outcome.value == "complete"
    judged = verdict(findings, fail_on)
    if not whole:
        judged = Verdict(exit_code=1, summary=session.reason or _first_fault(parts, lost))
    main = parts[-1] if parts else None
    return Report(
        kind="attach",
        provenance=Provenance(
            command="attach",
            inputs=[url],
            session=session.id,
            versions={"dsv4prof": __version__, **_server_version(attached)},
            settings=session.settings,
        ),
        checks=[
            Check(key="server", ok=True, message=f"{url}: {attached.facts.words()}"),
            _session_check(attached),
            *(merge_check(part.merged) for part in parts),
        ],
        sections=[
            msgspec.structs.replace(section, title=_prefixed(section.title, part.window, many))
            for part in parts
            for section in part.insight.sections
        ],
        metrics=_metrics(attached, main),
        findings=findings,
        notes=[*attached.notes, *(note for part in parts[-1:] for note in (*part.source.notes, *part.insight.notes))],
        verdict=judged,
        next_command=_next(session.id, parts),
        data=_data(url, attached, parts),
    )


def _first_fault(parts: list[_Part], lost: list[Finding]) -> str:
    """What is not whole, by name."""
    faults = [finding.message for finding in lost]
    for part in parts:
        merged = part.merged
        faults += [*merged.unreadable, *(f"rank {rank}: {why}" for rank, why in merged.faults.items())]
    return f"partial: {faults[0]}" if faults else "partial: a rank's trace is not whole"


def _next(session: str, parts: list[_Part]) -> str:
    if not parts:
        return f"dsv4prof sessions show {session}"
    return f"dsv4prof analyze {session}" + (f" --window {parts[-1].window}" if len(parts) > 1 else "")


def _findings(part: _Part) -> list[Finding]:
    return [*part.insight.findings, *part.merged.findings(part.source)]


def _named(finding: Finding, window: str, many: bool) -> Finding:
    return msgspec.structs.replace(finding, message=_prefixed(finding.message, window, many))


def _prefixed(text: str, window: str, many: bool) -> str:
    return f"{window}: {text}" if many and window and not text.lower().startswith(window) else text


def _session_check(attached: Attached) -> Check:
    session = attached.session
    recorded = [record for record in session.ranks if record.traces]
    size = sum(record.trace_bytes for record in recorded)
    windows = [window for record in recorded for window in record.windows]
    steps = max((record.steps for record in recorded), default=0)
    ends = " and ".join(sorted({window.ended_by.value for window in windows if window.ended_by is not None}))
    ranks = f"{len(recorded)} of {plural(len(session.ranks), 'rank')}"
    return Check(
        key="session",
        ok=session.outcome.value == "complete",
        message=f"{attached.folder}: {ranks}, {plural(steps, 'step')}, {size / 1e6:.1f} MB"
        + (f"; ended by {ends}" if ends else ""),
    )


def _metrics(attached: Attached, main: _Part | None) -> list[Metric]:
    own = attached.facts.accept_length
    told = [Metric("server.accept_length", "server's accept length", own, "tokens", "since its start")] if own else []
    return [*(main.insight.metrics if main else []), *told]


def _server_version(attached: Attached) -> dict[str, str]:
    facts = attached.facts
    return {facts.kind: facts.version} if facts.version and facts.kind != "dsv4prof" else {}


def _data(url: str, attached: Attached, parts: list[_Part]) -> dict[str, Any]:
    session, main = attached.session, parts[-1] if parts else None
    merged: dict[str, Any] = {}
    if main is not None:
        merged = {
            **main.insight.facts,
            "ranks": plan_facts(main.merged.plan),
            "merged": str(main.merged.path),
            "check": msgspec.to_builtins(main.merged.check),
        }
    return {
        "server": {"url": url, **msgspec.to_builtins(attached.facts)},
        "session": {"id": session.id, "path": str(attached.folder), "outcome": session.outcome.value},
        "workload": session.workload,
        **merged,
        "missing_ranks": [record.coordinates.rank for record in session.ranks if not record.traces],
        "windows": {
            part.window or "all": {
                "merged": str(part.merged.path),
                "ranks": plan_facts(part.merged.plan),
                "check": msgspec.to_builtins(part.merged.check),
                "step_ns": part.insight.facts.get("step_ns"),
            }
            for part in parts
        },
    }
