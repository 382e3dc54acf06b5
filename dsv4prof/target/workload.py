"""The same work three times: once to warm up, once timed, once recorded, so that each recorded step has its unprofiled
twin.

Greedy decoding is deterministic, so step i of a pass does the same work in every pass.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import mean, median, quantiles
from typing import Any, Protocol

from dsv4prof.recorder.overhead import StepTiming
from dsv4prof.target.control import StopControl


class Step(Protocol):
    """What the engine says of a step it made."""

    @property
    def kind(self) -> str: ...
    @property
    def key(self) -> str: ...
    @property
    def accept_lens(self) -> tuple[int, ...]: ...


class Result(Protocol):
    """What the engine says of a request."""

    @property
    def tokens(self) -> tuple[int, ...]: ...


class Server(Protocol):
    """The engine, as far as a workload needs it."""

    @property
    def has_work(self) -> bool: ...
    def add(self, prompt: Sequence[int], *, max_new_tokens: int, ignore_eos: bool = False) -> int: ...
    def flush_cache(self) -> bool: ...
    def step(self) -> Step: ...
    def result(self, request_id: int) -> Result: ...


@dataclass(frozen=True)
class MadeStep:
    """One step of a pass: its position there, and its wall time in nanoseconds."""

    position: int
    kind: str
    key: str
    duration_ns: int
    accept_lens: tuple[int, ...]

    def timing(self, *, profiled: bool) -> StepTiming:
        """For the overhead: the same position of the same workload is the same work."""
        return StepTiming(f"{self.position} {self.key}", self.duration_ns, profiled)


@dataclass
class Pass:
    """One serving of the whole workload."""

    steps: list[MadeStep] = field(default_factory=list)
    outputs: dict[int, tuple[int, ...]] = field(default_factory=dict)

    @property
    def kinds(self) -> list[str]:
        return [step.kind for step in self.steps]

    def facts(self) -> dict[str, Any]:
        """Counts, nanoseconds and rates of the pass; `tokens_sha256` is equal for equal output of the same requests."""
        durations = [step.duration_ns for step in self.steps]
        total_ns = sum(durations)
        tokens = sum(map(len, self.outputs.values()))
        accept_lens = [length for step in self.steps for length in step.accept_lens]
        return {
            "steps": len(self.steps),
            "steps_by_kind": {kind: self.kinds.count(kind) for kind in sorted(set(self.kinds))},
            "output_tokens": tokens,
            "tokens_per_second": tokens / (total_ns / 1e9) if total_ns else None,
            "verifies": len(accept_lens),
            "accept_length": mean(accept_lens) if accept_lens else None,
            "step_ns": _statistics(durations),
            "decode_step_ns": _statistics([step.duration_ns for step in self.steps if step.kind == "decode"]),
            "tokens_sha256": _sum_of_hashes(self.outputs),
        }


class Workload:
    """The same prompts, served as often as asked for."""

    def __init__(
        self,
        server: Server,
        prompts: Mapping[int, Sequence[int]],
        *,
        max_new_tokens: int,
        control: StopControl,
    ) -> None:
        """`prompts` by their number among all of the run's: a replica serves some of them."""
        self._server = server
        self._prompts = prompts
        self._max_new_tokens = max_new_tokens
        self._control = control

    def submit(self) -> dict[int, int]:
        """Queue every prompt; returns the requests' ids by number. End tokens are ignored: the work is as asked for.

        Prefixes that an earlier pass left are forgotten, so that this one does the same work.
        """
        self._server.flush_cache()
        return {
            number: self._server.add(prompt, max_new_tokens=self._max_new_tokens, ignore_eos=True)
            for number, prompt in self._prompts.items()
        }

    def serve(self, passed: Pass) -> Iterator[MadeStep]:
        """Serve the workload once, a step at a time; what was made is also in `passed`, even when it ends early.

        Raises RunInterruptedError between two steps when the run is to end.
        """
        requests = self.submit()
        position = 0
        while self._server.has_work:
            self._control.boundary()
            began = time.perf_counter_ns()
            step = self._server.step()
            took = time.perf_counter_ns() - began
            made = MadeStep(position, step.kind, step.key, took, tuple(step.accept_lens))
            passed.steps.append(made)
            yield made
            position += 1
        passed.outputs = {number: tuple(self._server.result(each).tokens) for number, each in requests.items()}

    def serve_whole(self) -> Pass:
        """One whole pass with nothing in between the steps."""
        passed = Pass()
        for _ in self.serve(passed):
            pass
        return passed

    def serve_forever(self, passed: Pass) -> Iterator[MadeStep]:
        """Pass after pass, for a window that is longer than the workload."""
        while True:
            yield from self.serve(passed)


def _sum_of_hashes(outputs: Mapping[int, Sequence[int]]) -> str:
    """SHA-256 of each numbered output, summed modulo 2**256: replicas' sums add up to that of one engine."""
    hashes = (hashlib.sha256(json.dumps([number, *tokens]).encode()).digest() for number, tokens in outputs.items())
    return add_hashes(*(digest.hex() for digest in hashes))


def add_hashes(*hashes: str) -> str:
    """The sum of such hashes, in the same form."""
    return f"{sum(int(each, 16) for each in hashes) % (1 << 256):064x}"


def together(replicas: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The facts of several replicas as those of one run: what they produced adds up, their steps are the same ones."""
    facts = dict(replicas[0]) if replicas else {}
    served = [replica for replica in replicas if replica.get("tokens_sha256")]
    if len(served) < 2:
        return facts
    verifies = sum(replica["verifies"] for replica in served)
    gained = sum(replica["verifies"] * (replica["accept_length"] or 0) for replica in served)
    return facts | {
        "output_tokens": sum(replica["output_tokens"] for replica in served),
        "tokens_per_second": sum(replica["tokens_per_second"] or 0 for replica in served),
        "verifies": verifies,
        "accept_length": gained / verifies if verifies else None,
        "tokens_sha256": add_hashes(*(replica["tokens_sha256"] for replica in served)),
    }


def _statistics(durations: Sequence[int]) -> dict[str, int] | None:
    if not durations:
        return None
    p99 = quantiles(durations, n=100, method="inclusive")[98] if len(durations) > 1 else durations[0]
    return {
        "count": len(durations),
        "mean": round(mean(durations)),
        "median": round(median(durations)),
        "p99": round(p99),
        "min": min(durations),
        "max": max(durations),
    }
