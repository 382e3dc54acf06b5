"""The embedded engine as a target: the only module of the toolkit that imports it, and only when it runs.

The leader that starts ranks stays without torch: what it can refuse it refuses here before anything is started.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from dsv4prof.errors import InputError, MissingExtraError, RankFailedError, UsageError
from dsv4prof.model.session import RankCoordinates
from dsv4prof.target.control import StopControl
from dsv4prof.target.hooks import ProfilingHooks
from dsv4prof.target.outputs import as_texts, write_part
from dsv4prof.target.serving import Progress, RankServing, rank_sink
from dsv4prof.target.spec import RunSpec
from dsv4prof.target.watching import watched
from dsv4prof.target.workload import Workload

if TYPE_CHECKING:
    from dsv4_engine.options import EngineOptions
    from dsv4_engine.parallel.place import ParallelSizes

COLLECTIVE_TIMEOUT_S = 300.0
# Fields of a RunSpec that are the engine's options of the same name.
_SAME_OPTIONS = (
    "model", "dtype", "num_drafts", "max_requests", "chunk_tokens", "exact_num_tokens", "backend", "page_size", "radix",
    "mixed", "draft_extend_graph", "plan_on", "faults", "simulate_accept_len",
)  # fmt: skip


def check(spec: RunSpec) -> None:
    """What can be refused without torch, before anything is started or written.

    Raises UsageError, InputError, or MissingExtraError where the ranks could not even import torch.
    """
    if importlib.util.find_spec("torch") is None:
        raise MissingExtraError("torch", "engine", purpose="the embedded engine")
    from dsv4_engine.checkpoint.configs import load_config
    from dsv4_engine.errors import EngineError
    from dsv4_engine.prompts import load_prompts

    try:
        load_prompts(spec.prompts)
        config = load_config(spec.model)
        _sizes(spec).require_divides(config)
        options = engine_options(spec, device="cpu", context_len=spec.context_len)
        options.require_mtp(config)
        options.resolve_context_len(config)
    except EngineError as error:
        raise InputError(error.message, hint=error.hint) from error


def check_rank(spec: RunSpec, me: RankCoordinates) -> None:
    """What a rank can refuse by itself once it has torch: a device that is absent, prompts that do not fit.

    Raises UsageError.
    """
    from dsv4_engine.errors import EngineError

    try:
        prepared(spec, me)
    except EngineError as error:
        raise UsageError(error.message, hint=error.hint) from error


def serve_rank(
    spec: RunSpec,
    me: RankCoordinates,
    folder: Path,
    *,
    init_method: str,
    control: StopControl,
    threads: int,
    progress: Progress,
) -> bool:
    """One rank's whole life in the session's folder; False when it was interrupted.

    Raises UsageError for what the engine refuses before its first step, RankFailedError when it fails later or when
    another rank is lost; the rank's record is written by then.
    """
    import torch

    from dsv4_engine.batch import ForwardBatch
    from dsv4_engine.engine import Engine
    from dsv4_engine.errors import EngineError
    from dsv4_engine.parallel.group import close

    torch.set_num_threads(threads)
    sink = rank_sink(folder, me)
    progress("loading the model")
    hooks = ProfilingHooks()
    alone = True
    try:
        # Whatever a rank can refuse by itself it refuses before it meets the others: all of them then say the same.
        options, prompts = prepared(spec, me)
        alone = False
        groups = join(spec, me, init_method)
        alone = True
        with watched(spec, me, folder, hooks, batch_type=ForwardBatch) as told:
            engine = Engine(options, hooks=told, groups=groups)
            mine = {number: prompts[number] for number in range(me.dp or 0, len(prompts), spec.dp)}
            workload = Workload(engine, mine, max_new_tokens=spec.max_new_tokens, control=control)
            facts, served = partial(engine_facts, spec, engine), partial(_keep_texts, spec, me, folder, prompts)
            serving = RankServing(workload, hooks, sink, facts=facts, progress=progress, served=served)
            done = serving.run(spec.plan if spec.profile else None)
    except EngineError as error:
        # A rank that cannot join has lost another one, whose own error says why.
        if control.steps_begun or not alone:
            raise RankFailedError(error.message, hint=error.hint) from error
        raise UsageError(error.message, hint=error.hint) from error
    close(groups.host)
    return done


def _keep_texts(
    spec: RunSpec,
    me: RankCoordinates,
    folder: Path,
    prompts: Sequence[Sequence[int]],
    outputs: Mapping[int, Sequence[int]],
) -> None:
    """All ranks of a replica make the same tokens: its first one keeps them, where that was asked for."""
    if not spec.show_text or me.rank % spec.tp:
        return
    from dsv4_engine.checkpoint.configs import load_config
    from dsv4_engine.tokenizer import load_tokenizer

    config = load_config(spec.model)
    texts = as_texts(outputs, prompts, load_tokenizer(spec.model, config), config.eos_token_ids)
    write_part(folder, me.dp or 0, texts)


def join(spec: RunSpec, me: RankCoordinates, init_method: str) -> Any:
    import torch

    from dsv4_engine.parallel.group import init_process_group
    from dsv4_engine.parallel.groups import ParallelGroups

    if spec.world == 1:
        return ParallelGroups.single()
    world = init_process_group(
        rank=me.rank,
        size=spec.world,
        device=torch.device(device_of(spec, me)),
        init_method=init_method,
        timeout_s=COLLECTIVE_TIMEOUT_S,
    )
    return ParallelGroups.divide(world, _sizes(spec))


def _sizes(spec: RunSpec) -> ParallelSizes:
    from dsv4_engine.parallel.place import ParallelSizes

    return ParallelSizes(tp=spec.tp, dp=spec.dp, ep=spec.ep)


def place_of(spec: RunSpec, me: RankCoordinates) -> RankCoordinates:
    """The same rank with its coordinates in this run; EP ranks count all of the run's."""
    return msgspec.structs.replace(
        me,
        tp=me.rank % spec.tp,
        dp=me.rank // spec.tp if spec.dp > 1 else me.dp,
        device=spec.device,
    )


def prepared(spec: RunSpec, me: RankCoordinates) -> tuple[EngineOptions, list[list[int]]]:
    """The engine's options, known to be possible here, and the workload's prompts as token ids, used again where there
    are too few. Raises EngineError.
    """
    from dsv4_engine.checkpoint.configs import load_config
    from dsv4_engine.prompts import load_prompts
    from dsv4_engine.request import require_servable
    from dsv4_engine.tokenizer import load_tokenizer

    config = load_config(spec.model)
    tokenizer = load_tokenizer(spec.model, config)
    texts = islice(cycle(load_prompts(spec.prompts)), spec.requests)
    prompts = [tokenizer.encode(text) for text in texts]
    longest = max(map(len, prompts)) + spec.max_new_tokens
    options = engine_options(
        spec,
        device=device_of(spec, me),
        context_len=spec.context_len or min(longest, config.max_position_embeddings),
    )
    options.torch_device()
    options.require_mtp(config)
    context_len = options.resolve_context_len(config)
    for prompt in prompts:
        require_servable(
            prompt, max_new_tokens=spec.max_new_tokens, context_len=context_len, vocab_size=config.vocab_size
        )
    return options, prompts


def engine_options(spec: RunSpec, *, device: str, context_len: int | None) -> EngineOptions:
    """The engine's options for what the spec asks; EngineError for what cannot be."""
    from dsv4_engine.options import EngineOptions

    return EngineOptions(
        **{name: getattr(spec, name) for name in _SAME_OPTIONS},
        device=device,
        context_len=context_len,
        cache_bytes=None if spec.cache_mb is None else spec.cache_mb << 20,
        overlap="auto" if spec.overlap is None else spec.overlap,
        graphs="auto" if spec.graphs is None else spec.graphs,
    )


def device_of(spec: RunSpec, me: RankCoordinates) -> str:
    """One GPU a rank of a node; the CPU is shared."""
    number = me.rank if me.local_rank is None else me.local_rank
    return spec.torch_device if spec.device == "cpu" else f"{spec.torch_device}:{number}"


def engine_facts(spec: RunSpec, engine: Any) -> dict[str, Any]:
    """What the engine made of the request, and of its graphs so far, for the manifest."""
    config, graphs = engine.config, engine.worker.graph_stats()
    return {
        "model": spec.model,
        "model_description": (
            f"{config.num_hidden_layers} layers, hidden size {config.hidden_size}, "
            f"{config.n_routed_experts} experts, vocabulary {config.vocab_size}"
        ),
        "backend": engine.options.backend,
        "context_len": engine.context_len,
        "overlap": engine.options.overlaps,
        "graphs_asked": spec.device != "cpu" if spec.graphs is None else spec.graphs,
        "graph_memory": [
            {"phase": graph.phase.value, "requests": graph.requests, "bytes": graph.num_bytes}
            for graph in graphs.graphs
        ],
        "simulate_accept_len": spec.simulate_accept_len,
        "faults": list(spec.faults),
        "plan_fallbacks": dict(engine.runner.plan_fallbacks),
        "caches": cache_facts(engine),
    }


def cache_facts(engine: Any) -> dict[str, Any]:
    """What the caches of one rank hold and take, in bytes."""
    plan = engine.runner.cache_plan
    layout = plan.layout
    return {
        "requests": layout.num_slots - 1,
        "pages": layout.num_pages - 1,
        "page_size": layout.page_size,
        "tokens": (layout.num_pages - 1) * layout.page_size,
        "tails": max(layout.num_tails - 1, 0),
        "bytes": plan.num_bytes,
        "pools": {pool.name: pool.bytes for pool in plan.pools},
    }
