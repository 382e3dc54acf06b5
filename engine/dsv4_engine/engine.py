"""The serving engine: requests go in, and each step computes one batch of prompts or of running requests.

Everything outside sees the engine through `StepHooks`; the engine never asks who listens.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from dsv4_engine.cache.staging import Faults
from dsv4_engine.capacity import cache_shape
from dsv4_engine.checkpoint.load import load_checkpoint
from dsv4_engine.errors import EngineError
from dsv4_engine.hooks import NullHooks, StepHooks
from dsv4_engine.loop import Launched, StepLoop
from dsv4_engine.options import EngineOptions
from dsv4_engine.parallel.groups import ParallelGroups
from dsv4_engine.parallel.place import ParallelSizes
from dsv4_engine.plan import StepPlan
from dsv4_engine.request import Request, RequestResult, SamplingParams, TokenLogprobs, require_servable
from dsv4_engine.runner import ModelRunner
from dsv4_engine.scheduler.counts import EngineStats
from dsv4_engine.scheduler.holdings import Holdings
from dsv4_engine.scheduler.replicas import ReplicaScheduler
from dsv4_engine.scheduler.scheduler import Committed, Scheduler
from dsv4_engine.worker import Worker, WorkerSettings

_KEY_LEN_STEP = 128
_SEED_BITS = 63


@dataclass(frozen=True, kw_only=True)
class StepResult:
    """What one step did. kind: prefill, decode or mixed. rows: query rows of the target forward.

    new_tokens: kept output tokens by request id; logprobs likewise, of requests that asked for them. accept_lens:
    tokens gained by each request's verify, before limits cut them. finished: ids. key: equal for steps of the same
    kind, batch and length class, which cost the same, so that a profiled step can be compared with an unprofiled one.
    With overlap a step may also have computed requests that had ended already: they count in `requests` and `rows`.
    """

    index: int
    kind: str
    requests: int
    rows: int
    new_tokens: dict[int, tuple[int, ...]]
    accept_lens: tuple[int, ...]
    finished: tuple[int, ...]
    key: str
    logprobs: dict[int, tuple[TokenLogprobs, ...]] = field(default_factory=dict)


class Engine:
    """One rank of a served model; all ranks of a replica must be given the same calls in the same order.

    Replicas (attention DP) have requests of their own. They share experts, so all must step together: each calls `step`
    while `has_work`, which is then asked of all of them.

    Not thread-safe: one thread owns it. After an exception out of `step` it is of no use any more.
    """

    def __init__(
        self,
        options: EngineOptions,
        *,
        hooks: StepHooks | None = None,
        groups: ParallelGroups | None = None,
    ) -> None:
        """Load the model and allocate its caches; EngineError on anything wrong with options or checkpoint."""
        groups = groups or ParallelGroups.single()
        if options.mixed and groups.place.sizes.dp > 1:
            raise EngineError("replicas that share experts do not mix prompts and decoding", hint="leave mixed off")
        device, dtype = options.torch_device(), options.torch_dtype
        config, weights = load_checkpoint(options.model, place=groups.place, dtype=dtype)
        options.require_mtp(config)
        shape = cache_shape(options, config, weights, device, groups)
        hooks = hooks or NullHooks()
        self.config = config
        self.options = options
        self._place = groups.place
        self.context_len = shape.context_len
        self.runner = ModelRunner(
            config,
            weights,
            groups=groups,
            device=device,
            dtype=dtype,
            cache=shape,
            exact_num_tokens=options.exact_num_tokens,
            hooks=hooks,
            backend=options.backend,
            plan_on=options.plan_on,
            faults=Faults(**dict.fromkeys(options.faults, True)),
            own_pages=False,
        )
        self.worker = Worker(
            self.runner,
            config=config,
            settings=_worker_settings(options, groups.place.sizes),
            device=device,
            dtype=dtype,
            hooks=hooks,
            backend=options.backend,
            environment=dict(os.environ),
        )
        self._holdings = _holdings(options, self.runner)
        self._scheduler = Scheduler(
            self._holdings, chunk_tokens=options.chunk_tokens, rows=options.num_drafts + 1, mixed=options.mixed
        )
        planner = ReplicaScheduler(self._scheduler, groups.exchange) if groups.place.sizes.dp > 1 else self._scheduler
        self._loop = StepLoop(planner, self.worker, hooks, overlap=options.overlaps)
        self._requests: dict[int, Request] = {}
        self._next_id = 0

    @property
    def has_work(self) -> bool:
        """Whether there is a step to make, or one to read."""
        return self._loop.has_work

    @property
    def num_free_slots(self) -> int:
        """Cache slots that no request holds; all of them once every request has finished."""
        return self._holdings.num_free_slots

    def add(
        self,
        prompt: Sequence[int],
        *,
        max_new_tokens: int,
        ignore_eos: bool = False,
        sampling: SamplingParams | None = None,
        stop_ids: Iterable[int] = (),
        priority: int = 0,
    ) -> int:
        """Queue a prompt of token ids; returns the request's id.

        The output ends at an end token (unless ignored) or one of `stop_ids`, after `max_new_tokens`, or where the
        context is full. Greedy unless `sampling` says otherwise. Higher priorities are admitted first, equal ones in
        order of arrival. EngineError on an empty prompt, one that leaves no room for output, ids outside the
        vocabulary, and a request that would not fit into the caches even alone.
        """
        require_servable(
            prompt, max_new_tokens=max_new_tokens, context_len=self.context_len, vocab_size=self.config.vocab_size
        )
        sampling = sampling or SamplingParams()
        ends = () if ignore_eos else self.config.eos_token_ids
        request = Request(
            id=self._next_id,
            prompt=tuple(prompt),
            max_output=min(max_new_tokens, self.context_len - len(prompt)),
            stop_ids=frozenset((*ends, *stop_ids)),
            sampling=sampling,
            seed=self._drawn_seed() if sampling.seed is None else sampling.seed,
            priority=priority,
        )
        self._scheduler.add(request)
        self._requests[request.id] = request
        self._next_id += 1
        return request.id

    def result(self, request_id: int) -> RequestResult:
        """What a request has produced so far; its finish_reason is None while it runs."""
        return self._request(request_id).result()

    def abort(self, request_id: int) -> bool:
        """Withdraw a request, whatever its state; slot and pages are free at once, and it keeps its tokens so far.

        False if it has ended already or is not known. What a step in flight computes for it is dropped.
        """
        request = self._requests.get(request_id)
        return request is not None and self._scheduler.abort(request)

    def forget(self, request_id: int) -> None:
        """Drop the record of a request that has ended; EngineError while it runs."""
        if self._request(request_id).finish_reason is None:
            raise EngineError(f"request {request_id} has not ended", hint="abort it first")
        del self._requests[request_id]

    def flush_cache(self) -> bool:
        """Forget all kept prefixes, so that the next requests are computed whole; False while there is work."""
        if self.has_work:
            return False
        self._holdings.tree.flush()
        return True

    def stats(self) -> EngineStats:
        """Where the engine stands, and sums since it was made."""
        return self._scheduler.stats(steps=self._loop.steps)

    def step(self) -> StepResult:
        """Complete one step; call it while `has_work`. With overlap the next one is launched before this one is read,
        by the first call two."""
        return _result(*self._loop.step())

    def _drawn_seed(self) -> int:
        """For the next request: equal on all ranks of a replica, and no other replica draws it."""
        return drawn_seed(self.options.seed, self._next_id * self._place.sizes.dp + self._place.dp_rank)

    def _request(self, request_id: int) -> Request:
        request = self._requests.get(request_id)
        if request is None:
            raise EngineError(f"request {request_id} is not known", hint="was it forgotten?")
        return request


def drawn_seed(engine_seed: int, request_id: int) -> int:
    """The seed of a request that has none: a hash of both numbers (the finaliser of SplitMix64), below 2**63."""
    mask = (1 << 64) - 1
    state = (engine_seed * 0xD1342543DE82EF95 + (request_id + 1) * 0x9E3779B97F4A7C15) & mask
    state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 & mask
    state = (state ^ (state >> 27)) * 0x94D049BB133111EB & mask
    return (state ^ (state >> 31)) >> (64 - _SEED_BITS)


def _worker_settings(options: EngineOptions, sizes: ParallelSizes) -> WorkerSettings:
    return WorkerSettings(
        num_drafts=options.num_drafts,
        max_requests=options.max_requests,
        lengths_known=not options.overlaps,
        graphs=options.graphs,
        draft_extend_graph=options.draft_extend_graph,
        capture_at_start=options.capture_at_start,
        simulate_accept_len=options.simulate_accept_len,
        with_peers=sizes.world > 1,
        shared_experts=sizes.dp > 1,
    )


def _holdings(options: EngineOptions, runner: ModelRunner) -> Holdings:
    """Accounts of what the runner has allocated, without padding's slot, page and tail."""
    return Holdings(
        max_requests=options.max_requests,
        num_pages=runner.layout.num_pages - 1,
        page_size=runner.layout.page_size,
        num_tails=max(runner.layout.num_tails - 1, 0),
        rows=options.num_drafts + 1,
        lookahead=1 if options.num_drafts else 0,
    )


def _result(launched: Launched, committed: Committed) -> StepResult:
    plan, count = launched.plan, len(launched.plan.requests)
    return StepResult(
        index=launched.index,
        kind=plan.kind,
        requests=count,
        rows=launched.rows,
        new_tokens={request.id: tokens for request, tokens in committed.kept.items()},
        accept_lens=committed.accept_lens,
        finished=tuple(request.id for request in committed.finished),
        key=f"{plan.kind} requests={count} rows={launched.rows} length<={_length_class(plan)}",
        logprobs={request.id: known for request, known in committed.logprobs.items()},
    )


def _length_class(plan: StepPlan) -> int:
    """The longest context after this plan, rounded up: attention's cost follows it slowly."""
    ends = [chunk.end for chunk in plan.chunks] + [running.max_cached + 1 for running in plan.running]
    return -(-max(ends, default=0) // _KEY_LEN_STEP) * _KEY_LEN_STEP
