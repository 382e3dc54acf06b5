"""From a spec to a server that answers, and back to nothing: checked, bound, loaded, served, ended."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dsv4prof.errors import MissingExtraError, RankFailedError, UsageError
from dsv4prof.model.session import RankCoordinates
from dsv4prof.recorder.control import ProfilerManager
from dsv4prof.recorder.control_requests import Controlled
from dsv4prof.recorder.coordinates import coordinates_from
from dsv4prof.recorder.sink import installed_versions
from dsv4prof.target.engine import check, engine_options, place_of
from dsv4prof.target.hooks import ProfilingHooks
from dsv4prof.target.ranks import choose_port
from dsv4prof.target.server.engine import LoadedEngine, load_engine, served_model
from dsv4prof.target.server.ranks import OtherRanks, other_ranks
from dsv4prof.target.server.recording import Hearing, RankedManager, Recording, StepFollower
from dsv4prof.target.server.spec import ServeSpec
from dsv4prof.target.serving import Progress

if TYPE_CHECKING:
    from dsv4_engine.server.commands import CommandChannel, Commands
    from dsv4_engine.server.options import ServerOptions

Ending = Callable[[Callable[[], None]], None]


def serve(
    spec: ServeSpec,
    *,
    progress: Progress = lambda event: None,
    ready: Callable[[str], None] = lambda url: None,
    stop: Ending = lambda end: None,
) -> bool:
    """Serve until SIGINT, which makes it True, or SIGTERM. `ready` hears the address when requests are answered.

    `stop` is handed a function that ends the server from any thread. Raises UsageError or InputError for what is
    refused (to be one of torchrun's ranks, too), RankFailedError when the engine fails while it serves,
    MissingExtraError without torch or starlette.
    """
    if (coordinates_from(os.environ).world_size or 1) > 1:
        raise UsageError(
            "serve is no rank of torchrun's: RANK and WORLD_SIZE are set",
            hint="serve --tp N starts its own ranks, on one host; unset them, or start it without torchrun",
        )
    check(spec.engine)
    try:
        from dsv4_engine.errors import EngineError
        from dsv4_engine.server.listen import bind
    except ImportError as error:
        raise MissingExtraError(error.name or "starlette", "engine", purpose="serving") from error

    try:
        options = _server_options(spec)
        listener = bind(options)
    except EngineError as error:
        raise UsageError(error.message, hint=error.hint) from error
    init_method = f"tcp://127.0.0.1:{choose_port(spec.engine.port)}" if spec.engine.world > 1 else ""
    with listener, other_ranks(spec, init_method) as others:
        try:
            return _serve(spec, options, listener, init_method, others, progress, ready, stop)
        except EngineError as error:
            raise UsageError(error.message, hint=error.hint) from error


def _serve(
    spec: ServeSpec,
    options: ServerOptions,
    listener: socket.socket,
    init_method: str,
    others: OtherRanks,
    progress: Progress,
    ready: Callable[[str], None],
    stop: Ending,
) -> bool:
    from dsv4_engine.server.app import build_app
    from dsv4_engine.server.engine_thread import EngineThread
    from dsv4_engine.server.listen import serve as listen
    from dsv4_engine.server.listen import url_of
    from dsv4_engine.server.service import Service

    run, me = spec.engine, _rank_zero(spec)
    name = spec.model_name or Path(run.model).name
    hooks = ProfilingHooks()
    root = Path(run.root).absolute()
    manager = ProfilerManager(name=run.name or name, root=root, plan=spec.plan, coordinates=me)
    controlled: Controlled = manager
    ranked = RankedManager(
        manager, lambda data: engine.tell_ranks(data), root=root, name=run.name or name, world=run.world
    )
    if run.world > 1:
        controlled = ranked
    loaded: list[LoadedEngine] = []

    def make() -> Any:
        loaded.append(load_engine(run, me, hooks, init_method))
        # The first recording would wait seconds for torch's imports otherwise.
        manager.warm_up()
        return loaded[0].engine

    engine = EngineThread(
        make,
        max_outstanding=run.max_requests + spec.max_queue,
        channel=_LateChannel(loaded),
        observer=StepFollower(manager, hooks),
        on_message=Hearing(manager, ranked.answered).hear,
    )
    progress(f"loading {name}")
    model = served_model(run, name, created=int(time.time()))
    engine.start(others.require_alive)
    service = Service(
        model=model, engine=engine, options=options, profile=Recording(controlled, spec.plan), info=_info(spec)
    )
    url = url_of(listener)
    with others.watched(engine.fail):
        interrupted = listen(
            build_app(service), engine, listener, grace_s=spec.grace_s, ready=lambda: ready(url), stop=stop
        )
    loaded[0].close()
    if engine.failure is not None:
        raise RankFailedError(f"the engine failed: {engine.failure}", hint="the server's stderr has the traceback")
    return interrupted


class _LateChannel:
    """The channel of an engine that is loaded on its own thread: there before it is first used."""

    def __init__(self, loaded: list[LoadedEngine]) -> None:
        self._loaded = loaded

    @property
    def heartbeat_s(self) -> float | None:
        return self._channel.heartbeat_s

    def send(self, commands: Commands) -> None:
        self._channel.send(commands)

    def receive(self) -> Commands:
        return self._channel.receive()

    @property
    def _channel(self) -> CommandChannel:
        return self._loaded[0].channel


def _rank_zero(spec: ServeSpec) -> RankCoordinates:
    me = RankCoordinates(rank=0, world_size=spec.engine.world, host=socket.gethostname())
    return place_of(spec.engine, me)


def _server_options(spec: ServeSpec) -> ServerOptions:
    from dsv4_engine.server.options import ServerOptions

    return ServerOptions(
        host=spec.host,
        port=spec.port,
        api_key=spec.api_key,
        model_name=spec.model_name,
        max_queue=spec.max_queue,
        max_body_mb=spec.max_body_mb,
        grace_s=spec.grace_s,
    )


def _info(spec: ServeSpec) -> dict[str, Any]:
    """SGLang's names where it has one, so that what reads its `/server_info` reads ours."""
    run, versions = spec.engine, installed_versions()
    drafts = run.num_drafts
    speculative = {
        "speculative_algorithm": "EAGLE" if drafts else None,
        "speculative_num_steps": drafts or None,
        "speculative_eagle_topk": 1 if drafts else None,
        "speculative_num_draft_tokens": drafts + 1 if drafts else None,
    }
    return {
        "server": "dsv4prof",
        "version": versions.get("dsv4prof"),
        "model_path": run.model,
        "device": run.device,
        "tp_size": run.tp,
        "dp_size": run.dp,
        "pp_size": 1,
        "ep_size": run.ep or run.world,
        "nnodes": 1,
        "enable_dp_attention": False,
        **speculative,
        "max_running_requests": run.max_requests,
        "max_queued_requests": spec.max_queue,
        "engine": asdict(engine_options(run, device=run.torch_device, context_len=run.context_len)),
        "versions": versions,
    }
