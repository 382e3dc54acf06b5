"""Whether a phase runs from a captured graph or eagerly, decided in one place and always with the reason.

sglang #29202 found a draft-extend that ran eagerly in silence because its gate had not heard of the backend. So the
reason is part of the answer, a whole sentence, and profiles show it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dsv4_engine.graphs.backends import known_backend
from dsv4_engine.phase import Phase

CAPTURABLE = (Phase.DECODE, Phase.DRAFT, Phase.TARGET_VERIFY, Phase.DRAFT_EXTEND)
DISABLE_DRAFT_EXTEND = "DSV4_DISABLE_DRAFT_EXTEND_CUDA_GRAPH"
_TRUE = ("1", "true", "yes", "on")


@dataclass(frozen=True, kw_only=True)
class GraphDecision:
    """`captured` or eager, and why: a sentence that begins with `captured: ` or `eager: `."""

    captured: bool
    reason: str


@dataclass(frozen=True, kw_only=True)
class BatchShape:
    """What a captured graph is keyed by: requests, and rows of each of them."""

    requests: int
    width: int


@dataclass(frozen=True, kw_only=True)
class GateFacts:
    """What stays the same while an engine runs.

    backend: name of the attention backend. device: `cpu` or `cuda` (HIP too). environment: holds the switches.
    graphs: `auto` (on for GPUs), True or False. buckets: request counts that graphs are made for, ascending.
    widths: rows a request that each phase is captured with. host_reads: why the model's forward reads values on the
    host, which no graph can hold, or None.
    """

    backend: str
    device: str
    environment: Mapping[str, str]
    graphs: bool | str
    draft_extend_graph: bool
    buckets: tuple[int, ...]
    widths: Mapping[Phase, int]
    host_reads: str | None = None


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Bytes that a graph still to be captured is expected to take, and bytes that the device has free."""

    needed: int
    free: int


def bucket_for(requests: int, buckets: tuple[int, ...]) -> int | None:
    """The smallest bucket that holds so many requests, or None."""
    return next((bucket for bucket in buckets if bucket >= requests), None)


def make_buckets(max_requests: int) -> tuple[int, ...]:
    """1, 2, 4, 8 ... and max_requests itself."""
    powers = [1 << exponent for exponent in range(max_requests.bit_length())]
    return (*(power for power in powers if power < max_requests), max_requests)


def graph_decision(phase: Phase, facts: GateFacts, shape: BatchShape, *, memory: Memory | None = None) -> GraphDecision:
    """Decide for one phase of one step. `memory` is given where the graph is not captured yet."""
    obstacle = standing_obstacle(phase, facts) or _shape_obstacle(phase, facts, shape) or _memory_obstacle(memory)
    if obstacle:
        return GraphDecision(captured=False, reason=f"eager: {obstacle}")
    return GraphDecision(captured=True, reason=f"captured: bucket of {bucket_for(shape.requests, facts.buckets)}")


def standing_obstacle(phase: Phase, facts: GateFacts) -> str | None:
    """Why this phase never runs from a graph in this engine, whatever the batch, or None."""
    if phase not in CAPTURABLE:
        return f"the rows of a {phase.value} step differ from step to step"
    unknown = known_backend(facts.backend, facts.environment)
    if unknown is not None:
        return unknown
    if facts.graphs is False:
        return "graphs are off (option graphs)"
    if facts.graphs == "auto" and facts.device == "cpu":
        return "graphs are off on a CPU (option graphs turns them on)"
    if phase is Phase.DRAFT_EXTEND:
        if facts.environment.get(DISABLE_DRAFT_EXTEND, "").strip().lower() in _TRUE:
            return f"{DISABLE_DRAFT_EXTEND} is set"
        if not facts.draft_extend_graph:
            return "the draft-extend graph is off (option draft_extend_graph)"
    if facts.host_reads is not None:
        return f"the model reads on the host: {facts.host_reads}"
    return None


def _shape_obstacle(phase: Phase, facts: GateFacts, shape: BatchShape) -> str | None:
    if bucket_for(shape.requests, facts.buckets) is None:
        return f"{shape.requests} requests are more than the largest bucket of {facts.buckets[-1]}"
    captured = facts.widths.get(phase)
    if captured is None:
        return f"no graph of {phase.value} was planned"
    if shape.width != captured:
        return f"{shape.width} rows a request differ from the {captured} of the capture"
    return None


def _memory_obstacle(memory: Memory | None) -> str | None:
    if memory is None or memory.free >= memory.needed:
        return None
    return f"a graph may take {_mib(memory.needed)}, and the device has {_mib(memory.free)} free"


def _mib(count: int) -> str:
    return f"{count / 2**20:,.0f} MiB"
