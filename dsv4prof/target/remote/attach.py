"""Record a running server into a session: SGLang's ranks by the names of their files, as its manager writes them."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from dsv4prof.errors import OutputError, UsageError
from dsv4prof.model.phase import Phase
from dsv4prof.model.session import RankCoordinates, Session
from dsv4prof.recorder.sessions import assemble, create_session, remove_session
from dsv4prof.recorder.sink import check_writable
from dsv4prof.target.remote.client import Client, NoAnswerError, printable
from dsv4prof.target.remote.collect import Collector, files_in
from dsv4prof.target.remote.expected import NamedFile, expected_ranks, read_name
from dsv4prof.target.remote.facts import ServerFacts
from dsv4prof.target.remote.interrupts import interruptible
from dsv4prof.target.remote.keep import Ending, keep_ranks, keep_snapshots, leave_rest
from dsv4prof.target.remote.local import LocalServer, is_here, local_server, may_write
from dsv4prof.target.remote.outcome import OUTPUT_DIR_HINT, absence, interruption, nothing
from dsv4prof.target.remote.recording import Ended, Progress, record
from dsv4prof.target.remote.sglang import SglangProfiler
from dsv4prof.target.remote.spec import AttachSpec, sglang_body

_STAGES = (Phase.PREFILL.value, Phase.DECODE.value)
_MOST_NAMES = 8


class Attached(msgspec.Struct, frozen=True, kw_only=True):
    """A session that was recorded on a server, and what is to be said of it beside its ranks."""

    folder: Path
    session: Session
    facts: ServerFacts
    notes: list[str] = []


def attach_sglang(client: Client, facts: ServerFacts, spec: AttachSpec, progress: Progress) -> Attached:
    """Record every rank of a SGLang server.

    Raises UsageError, OutputError and LifetimeError before the server was touched or when it refuses, InputError when
    nothing was recorded or the server is still saving, InterruptedRunError for Ctrl-C, SIGTERM and SIGHUP. The server's
    profiler is told to stop in every case, and no folder that it may still write to is removed.
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
        settings=spec.told(client.url, facts),
    )
    source = spec.output_dir or folder / "server"
    collector = Collector(
        source,
        lambda name: _wanted(name, folder.name, facts, spec),
        frozenset((rank.rank, window) for rank in ranks for window in spec.windows),
    )
    staged_only = here is not None and here.staged_only
    profiler = SglangProfiler(client, staged_only=staged_only, replies=facts.dp, stages=spec.plan.stages)
    with interruptible() as interrupts:
        try:
            before = _prepare(source, spec, here)
            body = sglang_body(spec, facts, spec.server_dir or str(source.absolute()), folder.name)
            ended = record(
                client, facts, spec, profiler, collector, progress,
                start=lambda: profiler.start(body), interrupts=interrupts,
            )  # fmt: skip
        except BaseException as error:
            _not_recorded(folder, source, profiler, error)
            raise
        _keep(folder, source, before, collector, ranks, facts, spec, ended)
        session = assemble(folder, workload=_workload(client.url, facts, ended), versions=_versions(facts))
        ended.interrupted = ended.cut or interrupts.count > 0
    _refuse_nothing(session, source, client.url, facts, profiler, collector, ended)
    return Attached(folder=folder, session=session, facts=facts, notes=[*notes, *ended.notes])


def _not_recorded(folder: Path, source: Path, profiler: SglangProfiler, error: BaseException) -> None:
    """A session without a recording goes; but a server that may have taken the request must find its folder."""
    if profiler.idle:
        remove_session(folder)
    elif isinstance(error, NoAnswerError):
        message = f"{error.message}; should it have begun, its trace will appear in {source}"
        raise NoAnswerError(message, hint=error.hint or "", slow=error.slow) from None


def _refuse_nothing(
    session: Session,
    source: Path,
    url: str,
    facts: ServerFacts,
    profiler: SglangProfiler,
    collector: Collector,
    ended: Ended,
) -> None:
    """Raises when there is nothing to report on, or the report was interrupted."""
    state = "its profiler is off again"
    if profiler.staged_only:
        # What knows no stop closes its windows with the steps that it was asked for.
        state = "its profiler stays armed until those steps have run: start no other before"
        ended.notes.extend([] if collector.complete else [state])
    saved = sum(bool(record.traces) for record in session.ranks)
    if ended.interrupted:
        raise interruption(ended, source, state, session=session.id, saved=saved, ranks=len(session.ranks))
    if not saved:
        raise nothing(url, facts, ended, source, state)


def _check(url: str, facts: ServerFacts, spec: AttachSpec, here: LocalServer | None) -> list[str]:
    """Refuse what cannot work before there is a folder; notes on what will be odd."""
    sglang_body(spec, facts, "", "")
    if spec.output_dir is None and not is_here(url):
        raise UsageError(f"{url} is another host, whose files cannot be seen from here", hint=OUTPUT_DIR_HINT)
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


def _prepare(source: Path, spec: AttachSpec, here: LocalServer | None) -> frozenset[str]:
    """SGLang's scheduler dies when it may not write where it was told to. The names that are there already."""
    check_folder(source, spec)
    if spec.server_dir is None and here is not None and not may_write(here.uid, source):
        raise OutputError(
            f"the server's user (uid {here.uid}) may not write into {source}, and it would not survive that",
            hint="--output-dir names a folder that it may write to",
        )
    return frozenset(path.name for path in files_in(source))


def check_folder(source: Path, spec: AttachSpec) -> None:
    """Raises OutputError that names the option which named the folder."""
    try:
        check_writable(source)
    except OutputError as error:
        if spec.output_dir is None:
            raise
        raise OutputError(f"--output-dir: {error.message}", hint="name a folder that may be written to") from None


def _wanted(name: str, profile_id: str, facts: ServerFacts, spec: AttachSpec) -> NamedFile | None:
    """A file of this recording; SGLang's older manager records stages that nobody asked for."""
    named = read_name(name, profile_id, facts)
    return named if named is not None and named.window in (*spec.windows, "") else None


def _keep(
    folder: Path,
    source: Path,
    before: frozenset[str],
    collector: Collector,
    ranks: list[RankCoordinates],
    facts: ServerFacts,
    spec: AttachSpec,
    ended: Ended,
) -> None:
    ending = Ending(
        by_server=ended.by_server,
        steps=spec.plan.active,
        by_stage=bool(spec.plan.stages),
        cut=ended.cut,
        absent=absence(facts, ended, source),
    )
    # What the server is still writing stays where it writes it.
    found = [item for item in collector.found.values() if item.whole or not ended.saving]
    # With all stages there, what our stop cut off belongs to another one.
    cut_off = bool(spec.plan.stages) and collector.complete
    found = [item for item in found if item.file.window or not cut_off]
    keep_ranks(folder, found, ranks, spec.windows, ending, _versions(facts))
    if snapshots := keep_snapshots(folder, source, before):
        ended.notes.append("allocator snapshots: " + ", ".join(snapshots))

    def dropped(name: str) -> bool:
        """A stage that nobody asked for, of a rank that was expected."""
        named = read_name(name, folder.name, facts) if spec.plan.stages else None
        if named is None or named.window in spec.windows:
            return False
        return named.window in _STAGES or (cut_off and not named.window)

    ours = spec.output_dir is None
    rest = leave_rest(source, folder.name, dropped, ours=ours)
    ended.notes.extend(_about_rest(source, rest, {item.path.name for item in collector.found.values()}, ended))
    if ours and ended.settled and not rest:
        with suppress(OSError):
            source.rmdir()


def _about_rest(source: Path, rest: list[str], ranked: set[str], ended: Ended) -> list[str]:
    strays = [name for name in rest if name not in ranked]
    shown = ", ".join(printable(name) for name in strays[:_MOST_NAMES])
    more = f" and {len(strays) - _MOST_NAMES} more" if len(strays) > _MOST_NAMES else ""
    notes = [f"kept in {source}, taken for no rank's: {shown}{more}"] if strays else []
    if not ended.settled:
        notes.append(f"{source} stays: a rank whose answer was not heard may still save there")
    return notes


def _versions(facts: ServerFacts) -> dict[str, str]:
    """The server's, since it wrote the traces: nothing that is installed here had a part in them."""
    return {facts.kind: facts.version} if facts.version else {}


def _workload(url: str, facts: ServerFacts, ended: Ended) -> dict[str, Any]:
    return {
        "server": url,
        **{key: value for key, value in msgspec.to_builtins(facts).items() if value not in (None, {})},
        "own_requests": ended.served,
    }
