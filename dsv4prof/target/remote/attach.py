"""Record a running server into a session: SGLang's ranks by the names of their files, as its manager writes them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import msgspec

from dsv4prof.errors import InputError, InterruptedRunError, OutputError, UsageError
from dsv4prof.model.session import RankCoordinates, RankRecord, Session
from dsv4prof.recorder.sessions import assemble, create_session, remove_session
from dsv4prof.recorder.sink import check_writable
from dsv4prof.target.remote.client import Client
from dsv4prof.target.remote.collect import Collector
from dsv4prof.target.remote.expected import NamedFile, expected_ranks, read_name
from dsv4prof.target.remote.facts import ServerFacts
from dsv4prof.target.remote.keep import Ending, keep_ranks, keep_snapshots
from dsv4prof.target.remote.local import LocalServer, is_here, local_server, may_write
from dsv4prof.target.remote.recording import Ended, Progress, record, terminated_as_interrupt
from dsv4prof.target.remote.sglang import SglangProfiler
from dsv4prof.target.remote.spec import AttachSpec, sglang_body

_OUTPUT_DIR_HINT = "--output-dir DIR names a folder that both see; HERE:THERE where the server has another name for it"


class Attached(msgspec.Struct, frozen=True, kw_only=True):
    """A session that was recorded on a server, and what is to be said of it beside its ranks."""

    folder: Path
    session: Session
    facts: ServerFacts
    notes: list[str] = []


def attach_sglang(client: Client, facts: ServerFacts, spec: AttachSpec, progress: Progress) -> Attached:
    """Record every rank of a SGLang server.

    Raises UsageError, OutputError and LifetimeError before the server was touched or when it refuses, InputError when
    nothing was recorded, InterruptedRunError for Ctrl-C and SIGTERM. The server's profiler is stopped in every case.
    """
    here = local_server(client.url)
    notes = _check(client.url, facts, spec, here)
    ranks = expected_ranks(facts)
    folder = create_session(
        spec.root.absolute(),
        name=spec.name or "attach",
        world_size=len(ranks),
        command=spec.command,
        plan=msgspec.to_builtins(spec.plan),
        settings=spec.settings,
    )
    source = spec.output_dir or folder / "server"
    collector = Collector(
        source,
        lambda name: _wanted(name, folder.name, facts, spec),
        frozenset((rank.rank, window) for rank in ranks for window in spec.windows),
    )
    profiler = SglangProfiler(client, staged_only=here is not None and here.staged_only, replies=facts.dp)
    with terminated_as_interrupt():
        try:
            _prepare(source, spec, here)
            profiler.start(sglang_body(spec, facts, spec.server_dir or str(source.absolute()), folder.name))
        except BaseException:
            remove_session(folder)
            raise
        ended = record(client, facts, spec, profiler, collector, progress)
    records = _keep(folder, source, collector, ranks, facts, spec, ended)
    session = assemble(folder, workload=_workload(client.url, facts, ended), versions=_versions(facts))
    # What knows no stop closes its windows with the steps that it was asked for.
    state = "its profiler stays armed until those steps have run: start no other before" if profiler.staged_only else ""
    if state and not collector.complete:
        ended.notes.append(state)
    _refuse_nothing(session, records, facts, spec, ended, state or "its profiler is off again")
    return Attached(folder=folder, session=session, facts=facts, notes=[*notes, *ended.notes])


def _check(url: str, facts: ServerFacts, spec: AttachSpec, here: LocalServer | None) -> list[str]:
    """Refuse what cannot work before there is a folder; notes on what will be odd."""
    sglang_body(spec, facts, "", "")
    if spec.output_dir is None and not is_here(url):
        raise UsageError(f"{url} is another host, whose files cannot be seen from here", hint=_OUTPUT_DIR_HINT)
    if here is not None and here.staged_only and not spec.plan.stages:
        raise UsageError(
            "this server runs with SGLANG_PROFILE_V2, which records by stage only: a plain start would end it",
            hint="--by-stage --steps 10",
        )
    if facts.speculative and spec.plan.stages:
        return [
            "SGLang (0.5.23) counts the verify steps of speculative decoding as prefill: its windows mix both, and the "
            "decode window may never come; without --by-stage the report tells the phases apart"
        ]
    return []


def _prepare(source: Path, spec: AttachSpec, here: LocalServer | None) -> None:
    """SGLang's scheduler dies when it may not write where it was told to."""
    check_writable(source)
    if spec.server_dir is None and here is not None and not may_write(here.uid, source):
        raise OutputError(
            f"the server's user (uid {here.uid}) may not write into {source}, and it would not survive that",
            hint="--output-dir names a folder that it may write to",
        )


def _wanted(name: str, profile_id: str, facts: ServerFacts, spec: AttachSpec) -> NamedFile | None:
    """A file of this recording; SGLang's older manager records stages that nobody asked for."""
    named = read_name(name, profile_id, facts)
    return named if named is not None and named.window in (*spec.windows, "") else None


def _keep(
    folder: Path,
    source: Path,
    collector: Collector,
    ranks: list[RankCoordinates],
    facts: ServerFacts,
    spec: AttachSpec,
    ended: Ended,
) -> list[RankRecord]:
    ending = Ending(
        by_server=ended.by_server,
        steps=spec.plan.active,
        by_stage=bool(spec.plan.stages),
        absent=_absence(facts, ended),
    )
    records = keep_ranks(folder, list(collector.found.values()), ranks, spec.windows, ending, _versions(facts))
    if snapshots := keep_snapshots(folder, source):
        ended.notes.append("allocator snapshots: " + ", ".join(snapshots))
    if spec.output_dir is None:
        shutil.rmtree(source, ignore_errors=True)
    return records


def _versions(facts: ServerFacts) -> dict[str, str]:
    """The server's, since it wrote the traces: nothing that is installed here had a part in them."""
    return {facts.kind: facts.version} if facts.version else {}


def _absence(facts: ServerFacts, ended: Ended) -> str:
    elsewhere = ", or the host that it runs on writes to a folder that is not seen here" if facts.nodes > 1 else ""
    return f"it ran no step of it in {ended.waited_s:.0f} s{elsewhere}"


def _workload(url: str, facts: ServerFacts, ended: Ended) -> dict[str, Any]:
    return {
        "server": url,
        **{key: value for key, value in msgspec.to_builtins(facts).items() if value not in (None, {})},
        "own_requests": ended.served,
    }


def _refuse_nothing(
    session: Session,
    records: list[RankRecord],
    facts: ServerFacts,
    spec: AttachSpec,
    ended: Ended,
    state: str,
) -> None:
    """Raises when there is nothing to report on, or the report was interrupted."""
    saved = sum(bool(record.traces) for record in records)
    if ended.interrupted:
        kept = f"the traces of {saved} of {len(records)} ranks are kept" if saved else "nothing was recorded"
        hint = f"dsv4prof merge {session.id}" if saved else None
        raise InterruptedRunError(f"interrupted; {state}, {kept}", hint=hint)
    if saved:
        return
    if ended.stopped:
        raise InputError(
            f"the server says that it saved its traces, and none is to be seen in {spec.output_dir or 'its folder'}: "
            "it runs in a container or on another host",
            hint=_OUTPUT_DIR_HINT,
        )
    refused = next((f" ({note})" for note in ended.notes if note.startswith("the load was refused")), "")
    raise InputError(
        f"nothing was recorded: {facts.name} ran no step in {ended.waited_s:.0f} s{refused}; {state}",
        hint="send it requests meanwhile, leave --load at auto, or have more --patience",
    )
