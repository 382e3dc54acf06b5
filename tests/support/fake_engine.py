"""An engine without a model: what it writes is a function of the prompt, several tokens a step as with MTP."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from dsv4_engine.errors import EngineError
from dsv4_engine.request import FinishReason, RequestResult, SamplingParams, TokenLogprobs

GREEDY = SamplingParams()
Script = Callable[[Sequence[int]], Sequence[int]]


def echo_script(prompt: Sequence[int]) -> list[int]:
    """The prompt again and again, without its begin token."""
    return list(prompt[1:] or prompt) * 64


@dataclass
class FakeStep:
    new_tokens: dict = field(default_factory=dict)
    logprobs: dict = field(default_factory=dict)
    finished: tuple = ()


@dataclass
class FakeStats:
    running: int
    waiting: int
    free_pages: int
    num_pages: int = 100
    cached_pages: int = 0
    accept_length: float | None = 1.5


@dataclass
class FakeRequest:
    script: list
    limit: int
    stop_ids: frozenset
    sampling: SamplingParams
    tokens: list = field(default_factory=list)
    finish: FinishReason | None = None


class FakeEngine:
    """Serves `slots` requests at a time, `per_step` tokens each, `step_s` seconds a step. Every method checks its
    thread. `fail_at`: the step that raises; `gate`: steps wait while it is cleared.
    """

    def __init__(
        self, script: Script = echo_script, *, slots=4, per_step=3, step_s=0.0, fail_at=None, eos=(1,), context=10_000
    ) -> None:
        self.script, self.slots, self.per_step, self.step_s, self.fail_at = script, slots, per_step, step_s, fail_at
        self.eos, self.context = eos, context
        self.gate = threading.Event()
        self.gate.set()
        self.requests: dict[int, FakeRequest] = {}
        self.order: list[int] = []
        self.aborted: list[int] = []
        self.added: list[dict] = []
        self.steps = self.flushes = 0
        self._next = 0
        self._thread = threading.get_ident()

    def _check(self) -> None:
        assert threading.get_ident() == self._thread, "the engine belongs to one thread"

    @property
    def has_work(self) -> bool:
        return bool(self.order)

    def add(self, prompt, *, max_new_tokens, ignore_eos=False, sampling=GREEDY, stop_ids=(), priority=0):
        self._check()
        if len(prompt) >= self.context:
            raise EngineError("the prompt can never fit", hint="shorten it")
        ends = frozenset(stop_ids) | (frozenset() if ignore_eos else frozenset(self.eos))
        self.added.append({"prompt": tuple(prompt), "sampling": sampling, "priority": priority})
        number, self._next = self._next, self._next + 1
        script = [token for token in self.script(prompt) if not (ignore_eos and token in self.eos)]
        self.requests[number] = FakeRequest(script, max_new_tokens, ends, sampling)
        self.order.append(number)
        return number

    def abort(self, request_id):
        self._check()
        request = self.requests[request_id]
        if request.finish is not None:
            return False
        request.finish = FinishReason.ABORT
        self.order.remove(request_id)
        self.aborted.append(request_id)
        return True

    def step(self):
        self._check()
        self.gate.wait(10)
        time.sleep(self.step_s)
        if self.fail_at is not None and self.steps >= self.fail_at:
            raise RuntimeError("the device is gone")
        self.steps += 1
        step, finished = FakeStep(), []
        for number in self.order[: self.slots]:
            request = self.requests[number]
            new = []
            while len(new) < self.per_step and request.finish is None:
                token = request.script[len(request.tokens)] if len(request.tokens) < len(request.script) else 1
                new.append(token)
                request.tokens.append(token)
                if token in request.stop_ids:
                    request.finish = FinishReason.STOP
                elif len(request.tokens) >= request.limit:
                    request.finish = FinishReason.LENGTH
            step.new_tokens[number] = tuple(new)
            if request.sampling.logprobs is not None:
                top = tuple((token, -1.0 - token) for token in range(request.sampling.logprobs))
                step.logprobs[number] = tuple(TokenLogprobs(logprob=-0.5, top=top) for _ in new)
            if request.finish is not None:
                finished.append(number)
        for number in finished:
            self.order.remove(number)
        step.finished = tuple(finished)
        return step

    def result(self, request_id):
        self._check()
        request = self.requests[request_id]
        return RequestResult(
            tokens=tuple(request.tokens), accept_lens=(), finish_reason=request.finish, cached_tokens=2
        )

    def forget(self, request_id):
        self._check()
        assert self.requests[request_id].finish is not None
        del self.requests[request_id]

    def stats(self):
        self._check()
        running = min(len(self.order), self.slots)
        return FakeStats(running, len(self.order) - running, 100 - running)

    def flush_cache(self):
        self._check()
        self.flushes += not self.order
        return not self.order
