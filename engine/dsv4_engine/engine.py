"""The serving loop: requests go in, and each step computes one batch of prompts or of running requests.

Everything outside sees the engine through `StepHooks`; the engine never asks who listens.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from dsv4_engine.cache.layout import CacheShape
from dsv4_engine.checkpoint.load import load_checkpoint
from dsv4_engine.config import ModelConfig
from dsv4_engine.execution import Execution, Strategy
from dsv4_engine.hooks import NullHooks, StepHooks
from dsv4_engine.options import EngineOptions
from dsv4_engine.parallel.group import TensorParallelGroup
from dsv4_engine.plain import PlainDecoding
from dsv4_engine.plan import StepPlan
from dsv4_engine.request import Request, RequestResult, require_servable
from dsv4_engine.runner import ModelRunner
from dsv4_engine.scheduler import Scheduler
from dsv4_engine.spec.mtp import MtpDecoding
from dsv4_engine.spec.relay import Relay

BACKEND = "reference"
_KEY_LEN_STEP = 128


@dataclass(frozen=True, kw_only=True)
class StepResult:
    """What one step did. kind: prefill or decode. rows: query rows of the target forward.

    new_tokens: kept output tokens by request id. accept_lens: tokens gained by each request's verify, before limits
    cut them. finished: ids. key: equal for steps of the same kind, batch and length class, which cost the same, so
    that a profiled step can be compared with an unprofiled one.
    """

    index: int
    kind: str
    requests: int
    rows: int
    new_tokens: dict[int, tuple[int, ...]]
    accept_lens: tuple[int, ...]
    finished: tuple[int, ...]
    key: str


class Engine:
    """One rank of a served model; all ranks of a group must add the same requests and make the same steps."""

    def __init__(
        self,
        options: EngineOptions,
        *,
        hooks: StepHooks | None = None,
        group: TensorParallelGroup | None = None,
    ) -> None:
        """Load the model and allocate its caches; EngineError on anything wrong with options or checkpoint."""
        group = group or TensorParallelGroup.single()
        device, dtype = options.torch_device(), options.torch_dtype
        config, weights = load_checkpoint(options.model, tp_rank=group.rank, tp_size=group.size, dtype=dtype)
        options.require_mtp(config)
        shape = CacheShape(
            max_requests=options.max_requests,
            context_len=options.resolve_context_len(config),
            num_draft_tokens=options.num_drafts + 1,
        )
        hooks = hooks or NullHooks()
        model = ModelRunner(
            config,
            weights,
            group=group,
            device=device,
            dtype=dtype,
            cache=shape,
            exact_num_tokens=options.exact_num_tokens,
            hooks=hooks,
        )
        execution = Execution(model=model, device=device, hooks=hooks, backend=BACKEND, environment=dict(os.environ))
        self.config = config
        self.options = options
        self.context_len = shape.context_len
        self._hooks = hooks
        self._strategy = _strategy(options, config, execution)
        self._scheduler = Scheduler(max_requests=options.max_requests, chunk_tokens=options.chunk_tokens)
        self._requests: dict[int, Request] = {}
        self._steps = 0

    @property
    def has_work(self) -> bool:
        return self._scheduler.has_work

    @property
    def num_free_slots(self) -> int:
        """Cache slots that no request holds; all of them once every request has finished."""
        return self._scheduler.num_free_slots

    def add(self, prompt: Sequence[int], *, max_new_tokens: int, ignore_eos: bool = False) -> int:
        """Queue a prompt of token ids; returns the request's id.

        The output ends at an end token (unless ignored), after `max_new_tokens`, or where the context is full.
        EngineError on an empty prompt, one that leaves no room for output, and ids outside the vocabulary.
        """
        require_servable(
            prompt, max_new_tokens=max_new_tokens, context_len=self.context_len, vocab_size=self.config.vocab_size
        )
        request = Request(
            id=len(self._requests),
            prompt=tuple(prompt),
            max_output=min(max_new_tokens, self.context_len - len(prompt)),
            stop_ids=frozenset() if ignore_eos else frozenset(self.config.eos_token_ids),
        )
        self._requests[request.id] = request
        self._scheduler.add(request)
        return request.id

    def result(self, request_id: int) -> RequestResult:
        """What a request has produced so far; its finish_reason is None while it runs."""
        return self._requests[request_id].result()

    @torch.inference_mode()
    def step(self) -> StepResult:
        """Compute one batch. Call it while `has_work`."""
        plan, index = self._scheduler.plan(), self._steps
        kind, requests, rows = self._size(plan)
        key = f"{kind} requests={requests} rows={rows} length<={_length_class(plan)}"
        with self._hooks.step(index, kind=kind, requests=requests, rows=rows):
            outcome = self._strategy.launch(plan).read()
            kept = self._scheduler.commit(plan, outcome)
        self._steps += 1
        return StepResult(
            index=index,
            kind=kind,
            requests=requests,
            rows=rows,
            new_tokens={request.id: tokens for request, tokens in kept.items()},
            accept_lens=outcome.accept_lens,
            finished=tuple(request.id for request in kept if request.finish_reason is not None),
            key=key,
        )

    def _size(self, plan: StepPlan) -> tuple[str, int, int]:
        rows = sum(chunk.length for chunk in plan.chunks) + len(plan.running) * self._strategy.rows_per_request
        return plan.kind, len(plan.requests), rows


def _strategy(options: EngineOptions, config: ModelConfig, execution: Execution) -> Strategy:
    if options.num_drafts == 0:
        return PlainDecoding(execution)
    relay = Relay.allocate(
        slots=options.max_requests,
        hc_mult=config.hc_mult,
        hidden_size=config.hidden_size,
        device=execution.device,
        dtype=options.torch_dtype,
    )
    return MtpDecoding(execution, relay, num_drafts=options.num_drafts)


def _length_class(plan: StepPlan) -> int:
    """The longest context after this plan, rounded up: attention's cost follows it slowly."""
    ends = [chunk.end for chunk in plan.chunks] + [running.max_cached + 1 for running in plan.running]
    return -(-max(ends) // _KEY_LEN_STEP) * _KEY_LEN_STEP
