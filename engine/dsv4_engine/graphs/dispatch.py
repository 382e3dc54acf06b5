"""Sends a phase to its captured graph or runs it eagerly, as the gate says, and counts both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from dsv4_engine.errors import EngineError
from dsv4_engine.graphs.gate import BatchShape, GateFacts, GraphDecision, Memory, bucket_for, graph_decision
from dsv4_engine.graphs.graph import CapturedGraph, GraphMaker, Program
from dsv4_engine.graphs.stats import GraphCounters, GraphMemory, GraphStats
from dsv4_engine.phase import Phase

_FIRST_GUESS = 64 << 20
"""Bytes that a graph is expected to take while none of its phase has been captured."""


@dataclass(frozen=True, kw_only=True)
class Route:
    """The gate's decision for a phase, and how many requests to build its inputs for: padded to the graph's bucket.

    peer_requests: the most that any replica builds them for; None where experts are not shared.
    """

    phase: Phase
    requests: int
    peer_requests: int | None
    captured: bool
    reason: str


class GraphDispatch:
    """Owns the graphs of one engine; captures one when its bucket is first needed, or all of them by `capture_all`."""

    def __init__(
        self, facts: GateFacts, maker: GraphMaker, programs: Sequence[Program], *, with_peers: bool = False
    ) -> None:
        """with_peers: other ranks compute the same steps and must decide alike, as a capture runs their collectives
        too. What only one of them can know, its free memory, is then no reason to fall back but an error, since the
        others would wait for it."""
        self._facts, self._maker, self._with_peers = facts, maker, with_peers
        self._programs = {program.phase: program for program in programs}
        self._graphs: dict[tuple[Phase, int], CapturedGraph] = {}
        self._failed: dict[tuple[Phase, int], GraphDecision] = {}
        self._counters = GraphCounters()

    def route(self, phase: Phase, *, requests: int, width: int, peer_requests: int | None = None) -> Route:
        """Decide, and capture the graph if this is its first use.

        peer_requests: the most that any data-parallel replica has. They share experts and so must choose alike: the
        bucket follows it, and a replica without requests computes one of padding.
        """
        most = requests if peer_requests is None else max(peer_requests, 1)
        decision = self._decide(phase, BatchShape(requests=most, width=width))
        if decision.captured:
            bucket = bucket_for(most, self._facts.buckets)
            assert bucket is not None
            self._counters.replayed(phase, padded=bucket - requests)
            padded, peers = bucket, bucket
        else:
            self._counters.fell_back(phase, decision.reason)
            padded, peers = max(requests, 1), most
        return Route(
            phase=phase,
            requests=padded,
            peer_requests=None if peer_requests is None else peers,
            captured=decision.captured,
            reason=decision.reason,
        )

    def run(self, route: Route, inputs: Any) -> Any:
        """Inputs of `route.requests` requests -> the program's outputs, valid until any phase runs again."""
        if route.captured:
            return self._graphs[route.phase, route.requests].replay(inputs)
        return self._programs[route.phase](inputs)

    def capture_all(self) -> None:
        """Capture every bucket that the gate allows, the largest first, so that smaller ones fit into its memory."""
        for phase, program in self._programs.items():
            for bucket in reversed(self._facts.buckets):
                self._decide(phase, BatchShape(requests=bucket, width=program.width))

    def stats(self) -> GraphStats:
        graphs = tuple(
            GraphMemory(phase=phase, requests=bucket, num_bytes=graph.num_bytes)
            for (phase, bucket), graph in self._graphs.items()
        )
        return self._counters.stats(graphs)

    def _decide(self, phase: Phase, shape: BatchShape) -> GraphDecision:
        decision = graph_decision(phase, self._facts, shape)
        bucket = bucket_for(shape.requests, self._facts.buckets)
        if bucket is None or not decision.captured or (phase, bucket) in self._graphs:
            return decision
        if (phase, bucket) not in self._failed:
            # Asked once: it is a call into the driver, and its answer is another one at every step.
            fits = graph_decision(phase, self._facts, shape, memory=self._memory(phase, bucket))
            failure = self._capture(phase, bucket) if fits.captured else fits
            if failure is None:
                return decision
            self._failed[phase, bucket] = failure
        return self._failed[phase, bucket]

    def _capture(self, phase: Phase, bucket: int) -> GraphDecision | None:
        """An answer only where that fails."""
        program = self._programs[phase]
        try:
            self._graphs[phase, bucket] = self._maker.capture(program, program.example(bucket))
        except torch.OutOfMemoryError as error:
            self._refuse_alone(bucket, error)
            failure = "ran out of memory"
        except RuntimeError as error:  # a call that the driver lets no graph hold
            self._refuse_alone(bucket, error)
            failure = f"failed: {str(error).splitlines()[0]}"
        else:
            return None
        return GraphDecision(captured=False, reason=f"eager: capturing a bucket of {bucket} {failure}")

    def _refuse_alone(self, bucket: int, error: RuntimeError) -> None:
        if self._with_peers:
            raise EngineError(
                f"capturing a graph of {bucket} requests failed on this rank: {str(error).splitlines()[0]}",
                hint="ranks that compute together decide alike: turn graphs off, or lower max_requests",
            ) from error

    def _memory(self, phase: Phase, bucket: int) -> Memory | None:
        free = None if self._with_peers else self._maker.free_bytes()
        if free is None:
            return None
        known = [
            graph.num_bytes * bucket // requests for (other, requests), graph in self._graphs.items() if other is phase
        ]
        return Memory(needed=max(known, default=_FIRST_GUESS), free=free)
