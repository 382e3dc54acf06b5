"""One rank's engine for a server, with the channel that its commands come through."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dsv4prof.model.session import RankCoordinates
from dsv4prof.target.engine import COLLECTIVE_TIMEOUT_S, device_of, engine_options, join
from dsv4prof.target.hooks import ProfilingHooks
from dsv4prof.target.spec import RunSpec

if TYPE_CHECKING:
    from dsv4_engine.server.commands import CommandChannel
    from dsv4_engine.server.generation import ServedModel


@dataclass(frozen=True, kw_only=True)
class LoadedEngine:
    """close: leave the ranks' group."""

    engine: Any
    channel: CommandChannel
    close: Callable[[], None]


def served_model(run: RunSpec, name: str, *, created: int) -> ServedModel:
    """What requests are measured against; known without loading weights. Raises EngineError."""
    from dsv4_engine.checkpoint.configs import load_config
    from dsv4_engine.server.generation import ServedModel
    from dsv4_engine.tokenizer import load_tokenizer

    config = load_config(run.model)
    options = engine_options(run, device="cpu", context_len=run.context_len)
    return ServedModel(
        names=tuple(dict.fromkeys((name, run.model))),
        tokenizer=load_tokenizer(run.model, config),
        context_len=options.resolve_context_len(config),
        vocab_size=config.vocab_size,
        eos_token_ids=config.eos_token_ids,
        created=created,
    )


def load_engine(run: RunSpec, me: RankCoordinates, hooks: ProfilingHooks, init_method: str) -> LoadedEngine:
    """On the thread that will own it. Raises EngineError for options, a checkpoint or ranks that cannot be."""
    import torch

    from dsv4_engine.engine import Engine
    from dsv4_engine.parallel.group import close
    from dsv4_engine.server.commands import BroadcastChannel, SoloChannel

    torch.set_num_threads(run.threads_of_a_rank())
    options = engine_options(run, device=device_of(run, me), context_len=run.context_len)
    options.torch_device()
    groups = join(run, me, init_method)
    channel: CommandChannel = SoloChannel()
    if run.world > 1:
        channel = BroadcastChannel(groups.host.process_group, timeout_s=COLLECTIVE_TIMEOUT_S)
    engine = Engine(options, hooks=hooks, groups=groups)
    return LoadedEngine(engine=engine, channel=channel, close=lambda: close(groups.host))
