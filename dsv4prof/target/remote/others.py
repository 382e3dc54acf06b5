"""Servers that are not SGLang: our own manager, which keeps the session itself, and others with a folder of their own.

vLLM's `/start_profile` takes no request: where and what it records was said when it was started (its documentation; not
tried against a running one). So the folder has to be named, and what is new in it afterwards is the recording.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from dsv4prof.errors import InputError, InterruptedRunError, LifetimeError, UsageError
from dsv4prof.model.session import RankCoordinates
from dsv4prof.recorder.sessions import assemble, create_session, find_session, open_session, remove_session
from dsv4prof.target.remote.attach import Attached
from dsv4prof.target.remote.client import Answer, Client, NoAnswerError, printable
from dsv4prof.target.remote.collect import Collector, Found, files_in
from dsv4prof.target.remote.expected import NamedFile
from dsv4prof.target.remote.facts import ServerFacts, requests_in_progress
from dsv4prof.target.remote.interrupts import interruptible
from dsv4prof.target.remote.keep import Ending, keep_ranks
from dsv4prof.target.remote.load import Load
from dsv4prof.target.remote.outcome import interruption, nothing
from dsv4prof.target.remote.recording import Progress, record
from dsv4prof.target.remote.sglang import refuse_start
from dsv4prof.target.remote.spec import AttachSpec
from dsv4prof.target.remote.stopping import SAVING_S, Stop, Watch, stop_bounded
from dsv4prof.trace.identity import identify

_TIMEOUT = 30.0
_POLL_S = 0.3
_LOAD_END_S = 3.0
_SUFFIXES = (".trace.json", ".trace.json.gz")


class PlainProfiler:
    """`/start_profile` and `/stop_profile` without anything to say to them."""

    def __init__(self, client: Client) -> None:
        self._client = client
        # These answer for all their workers.
        self.everyone = True
        self.lingers = False
        self.idle = True

    def start(self, body: dict[str, Any] | None = None) -> Answer:
        """Raises LifetimeError when the server refuses, UsageError when it has no profiling."""
        self.idle = False
        try:
            answer = self._client.post("/start_profile", body, timeout=_TIMEOUT)
        except NoAnswerError:
            self.idle = self.end(timeout=_TIMEOUT) is not Stop.UNANSWERED
            raise
        if answer.ok:
            return answer
        self.idle = True
        said = answer.object().get("message") or answer.object().get("error") or answer.text
        if answer.status != 409:
            refuse_start(answer, self._client.url)
        said = printable(str(said)) or "it does not say why"
        raise LifetimeError(
            f"{self._client.url} refused to start profiling (HTTP {answer.status}): {said}",
            hint=f"curl -X POST {self._client.url}/stop_profile ends what is running",
        )

    def end(self, *, timeout: float) -> Stop:
        try:
            return Stop.SAVED if self._client.post("/stop_profile", timeout=timeout).ok else Stop.NOTHING
        except NoAnswerError as error:
            return Stop.UNANSWERED if error.slow else Stop.GONE


def attach_folder(client: Client, facts: ServerFacts, spec: AttachSpec, progress: Progress) -> Attached:
    """Record a server that writes where it likes: `spec.output_dir` is that folder. Errors as of `attach_sglang`."""
    if spec.output_dir is None:
        raise UsageError(
            f"{facts.name} decides itself where its traces go", hint="--output-dir DIR: the folder it was started with"
        )
    if spec.plan.active is not None or spec.plan.stages:
        raise UsageError(f"{facts.name} cannot be asked for steps or stages", hint="--seconds S")
    source = spec.output_dir
    if not source.is_dir():
        raise UsageError(
            f"--output-dir: {source} is no folder that is seen here", hint="mount the server's folder first"
        )
    before = {path.name for path in files_in(source)}
    folder = create_session(
        spec.root.absolute(),
        name=spec.name or "attach",
        world_size=1,
        command=spec.command,
        settings=spec.told(client.url, facts),
    )
    collector = Collector(source, lambda name: _new(name, before), None)
    profiler = PlainProfiler(client)
    with interruptible() as interrupts:
        try:
            ended = record(
                client, facts, spec, profiler, collector, progress, start=profiler.start, interrupts=interrupts
            )
        except BaseException:
            if profiler.idle:
                remove_session(folder)
            raise
        found = [item for item in collector.found.values() if item.whole or not ended.saving]
        ending = Ending(cut=ended.cut, absent="it saved no file")
        records = keep_ranks(folder, _ranked(found, ended.notes), [], ("",), ending, {}) if found else []
        ended.interrupted = ended.cut or interrupts.count > 0
    if ended.interrupted:
        ranks = len(records)
        raise interruption(
            ended, source, "its profiler is off again", session=_id(folder), saved=ranks, ranks=max(1, ranks)
        )
    if not found and (ended.gone or ended.saving):
        raise nothing(client.url, facts, ended, source, "")
    if not found:
        raise InputError(
            f"nothing new is in {source}: {facts.name} ran no step, or writes elsewhere",
            hint="send it requests meanwhile, and name the folder that it was started with",
        )
    world = max([record.coordinates.rank for record in records]) + 1
    workload = {"server": client.url, **msgspec.to_builtins(facts), "own_requests": ended.served}
    session = assemble(folder, world_size=world, workload=workload)
    return Attached(folder=folder, session=session, facts=facts, notes=ended.notes)


def attach_own(client: Client, facts: ServerFacts, spec: AttachSpec, progress: Progress) -> Attached:
    """Record a program with our own manager: it makes the session, in `spec.root`, which it must see."""
    root = (spec.output_dir or spec.root).absolute()
    plan = spec.plan
    body = {
        "output_dir": spec.server_dir or str(root),
        "profile_id": spec.name or "attach",
        "num_steps": plan.active,
        "start_step": plan.start_step,
        "activities": plan.activities,
        "with_stack": plan.with_stack,
        "record_shapes": plan.record_shapes,
        **({"stages": [stage.value for stage in plan.stages]} if plan.stages else {}),
    }
    profiler, load = PlainProfiler(client), Load(client, facts)
    with interruptible() as interrupts, _halted(load):
        cut = False
        try:
            profiler.start({key: value for key, value in body.items() if value is not None})
            if _is_idle(client, facts, spec):
                progress("recording; the server is idle: sending it a few short requests")
                load.start()
            else:
                progress("recording")
            _wait_for_end(client, spec)
            interrupts.hold()
        except KeyboardInterrupt:
            interrupts.hold()
            cut = True
        except BaseException:
            if not profiler.idle:
                profiler.end(timeout=_TIMEOUT)
            raise
        load.halt()
        limit = max(spec.patience, _TIMEOUT if cut else SAVING_S)
        stop = stop_bounded(profiler, client, limit, interrupts, progress)
        if cut or interrupts.count:
            after = "it has not answered the stop yet" if stop is Stop.UNANSWERED else "its profiler is off again"
            raise InterruptedRunError(
                f"interrupted; {after}, what it recorded is in {root}", hint="dsv4prof sessions list"
            )
    if stop is Stop.GONE:
        raise InputError(f"the server is gone: {client.url} stopped answering", hint=f"what it saved is in {root}")
    if stop is Stop.UNANSWERED:
        raise InputError(
            f"{facts.name} is still saving: the session will appear in {root}", hint="dsv4prof sessions list"
        )
    last = _status(client).get("last")
    told = last if isinstance(last, dict) else {}
    name = told.get("session")
    if not isinstance(name, str):
        raise InputError(f"{facts.name} does not say what it recorded", hint="dsv4prof sessions list")
    folder = find_session(root, Path(name).name if (root / Path(name).name).is_dir() else name)
    session = assemble(
        folder,
        settings={**open_session(folder).settings, **spec.told(client.url, facts)},
        workload={"server": client.url, **msgspec.to_builtins(facts), "own_requests": load.served},
    )
    if not any(record.traces for record in session.ranks):
        why = session.reason or printable(str(told.get("reason") or "it ran no step"))
        raise InputError(f"nothing was recorded: {why}", hint="send it requests")
    return Attached(folder=folder, session=open_session(folder), facts=facts)


def _is_idle(client: Client, facts: ServerFacts, spec: AttachSpec) -> bool:
    """Whether the program serves a model, has nothing to do, and is to be given something."""
    if spec.load == "none" or facts.model is None:
        return False
    try:
        return requests_in_progress(client, facts.kind) == 0
    except NoAnswerError:
        return False


@contextmanager
def _halted(load: Load) -> Iterator[None]:
    """Whatever happens, no requests of ours go on."""
    try:
        yield
    finally:
        load.halt()
        load.join(wait_s=_LOAD_END_S)


def _wait_for_end(client: Client, spec: AttachSpec) -> None:
    """Until the manager is idle again and everything saved, the seconds are over, or nothing moved for the patience."""
    if spec.plan.active is None:
        until, watch = time.monotonic() + spec.seconds, Watch(client)
        while (left := until - time.monotonic()) > 0 and not watch.look():
            time.sleep(min(_POLL_S, left))
        return
    changed, last = time.monotonic(), None
    while time.monotonic() - changed < spec.patience:
        try:
            status = _status(client)
        except NoAnswerError as error:
            # A server that is gone is found so by the stop that follows.
            if not error.slow:
                return
            continue
        if status.get("state") == "idle" and not status.get("saving"):
            return
        now = (status.get("state"), status.get("steps"), status.get("total_steps"))
        if now != last:
            changed, last = time.monotonic(), now
        time.sleep(_POLL_S)


def _id(folder: Path) -> str:
    return open_session(folder).id


def _ranked(found: list[Found], notes: list[str]) -> list[Found]:
    """The files that say which rank they are of, or the only one. A front end's own trace is no rank's."""
    ranked = [item for item in found if item.file.coordinates.rank >= 0]
    others = [item for item in found if item.file.coordinates.rank < 0]
    if not ranked and len(others) == 1:
        return [msgspec.structs.replace(others[0], file=NamedFile(RankCoordinates(rank=0), ""))]
    if not ranked:
        raise InputError(
            f"{others[0].path.name} does not say in its name which rank it is of",
            hint=f"dsv4prof merge {others[0].path.parent}/*.json.gz",
        )
    notes.extend(f"{item.path} was left where it is: its name tells no rank" for item in others)
    return ranked


def _status(client: Client) -> dict[str, Any]:
    """The manager's status, by itself or inside the answer."""
    told = client.get("/profile_status", timeout=_TIMEOUT).object()
    inner = told.get("status")
    return inner if isinstance(inner, dict) else told


def _new(name: str, before: set[str]) -> NamedFile | None:
    """A trace that was not there before; rank -1 where its name tells none."""
    if name in before or not name.endswith(_SUFFIXES):
        return None
    identity = identify(name, {})
    rank = -1 if identity.rank is None else identity.rank
    groups = identity.groups
    told = RankCoordinates(
        rank=rank,
        world_size=identity.world_size,
        tp=groups.get("tp"),
        dp=groups.get("dp"),
        pp=groups.get("pp"),
        ep=groups.get("ep"),
    )
    # Files of no rank must not be taken for one another.
    return NamedFile(told, name if rank < 0 else "")
