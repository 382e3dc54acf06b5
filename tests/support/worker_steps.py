"""A worker on the golden model, driven by hand-made plans: steps without a scheduler."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count

import torch

from dsv4_engine.checkpoint.load import load_checkpoint
from dsv4_engine.hooks import NullHooks, StepHooks
from dsv4_engine.plan import Chunk, Running, StepOutcome, StepPlan
from dsv4_engine.request import Request, SamplingParams
from dsv4_engine.worker import Worker, WorkerSettings
from engine_batches import CPU, GOLDEN, golden_runner, random_ids

GREEDY = SamplingParams()
_ids = count()


def make_worker(
    *,
    num_drafts: int = 3,
    max_requests: int = 4,
    hooks: StepHooks | None = None,
    environment: Mapping[str, str] | None = None,
    device: torch.device = CPU,
    backend: str = "reference",
    **settings: object,
) -> Worker:
    torch.set_num_threads(1)
    hooks = hooks or NullHooks()
    runner = golden_runner(
        hooks=hooks, max_requests=max_requests, num_draft_tokens=num_drafts + 1, context_len=256, device=device
    )
    config, _ = load_checkpoint(GOLDEN)
    return Worker(
        runner,
        config=config,
        settings=WorkerSettings(num_drafts=num_drafts, max_requests=max_requests, **settings),  # type: ignore[arg-type]
        device=device,
        dtype=torch.float32,
        hooks=hooks,
        backend=backend,
        environment=environment or {},
    )


def make_request(
    slot: int, length: int = 9, *, sampling: SamplingParams = GREEDY, seed: int | None = None, output: int = 40
) -> Request:
    """A request with a random prompt, which depends on slot and length alone."""
    prompt = tuple(random_ids(length, seed=100 * slot + length).tolist())
    request = Request(id=next(_ids), prompt=prompt, max_output=output, stop_ids=frozenset(), sampling=sampling)
    request.slot, request.seed = slot, slot if seed is None else seed
    return request


def prefill(*requests: Request) -> tuple[Chunk, ...]:
    return tuple(Chunk(request=each, start=0, length=each.prefill_len) for each in requests)


def running(*requests: Request) -> tuple[Running, ...]:
    return tuple(Running(request=each, max_cached=each.cached_len) for each in requests)


def do(worker: Worker, plan: StepPlan) -> StepOutcome:
    """One step, its outcome given to its requests."""
    outcome = worker.launch(plan).read()
    logprobs = outcome.logprobs or ((),) * len(plan.requests)
    for request, tokens, known in zip(plan.requests, outcome.tokens, logprobs, strict=True):
        request.take(tokens, known)
    return outcome


def generate(worker: Worker, requests: Sequence[Request]) -> list[tuple[int, ...]]:
    """Prefill all, then decode until each has its output."""
    do(worker, StepPlan(chunks=prefill(*requests)))
    while left := [each for each in requests if each.finish_reason is None]:
        do(worker, StepPlan(running=running(*left)))
    return [tuple(each.output) for each in requests]
