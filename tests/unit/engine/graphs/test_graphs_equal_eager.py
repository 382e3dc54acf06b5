"""Captured equals eager and padded equals exact, on buffers that are poisoned before every replay."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from unittest.mock import Mock

import pytest
import torch

from dsv4_engine.attention import tree
from dsv4_engine.engine import _worker_settings
from dsv4_engine.errors import EngineError
from dsv4_engine.graphs.cpu import CpuGraphMaker
from dsv4_engine.graphs.dispatch import GraphDispatch
from dsv4_engine.graphs.gate import GateFacts
from dsv4_engine.model import moe
from dsv4_engine.options import EngineOptions
from dsv4_engine.parallel.place import ParallelSizes
from dsv4_engine.phase import Phase
from dsv4_engine.plan import StepPlan
from dsv4_engine.request import SamplingParams
from engine_batches import worst
from serving import RecordingHooks
from worker_steps import do, generate, make_request, make_worker, prefill, running

SAMPLING = {1: SamplingParams(), 2: SamplingParams(temperature=0.9, top_p=0.95), 3: SamplingParams(logprobs=1)}


def batch(count: int, *, output: int = 14):
    lengths = {1: 9, 2: 122, 3: 60}
    return [
        make_request(slot, lengths[slot], sampling=SAMPLING[slot], output=output + slot) for slot in range(1, count + 1)
    ]


@pytest.mark.parametrize("num_drafts", [0, 1, 3, 7])
def test_tokens_are_those_of_eager_phases(num_drafts):
    """Three requests in buckets of 4, then 2, then 1, as they end one after the other."""
    eager = generate(make_worker(num_drafts=num_drafts, graphs=False), batch(3))
    worker = make_worker(num_drafts=num_drafts, graphs=True, poison_graphs=True)
    assert generate(worker, batch(3)) == eager
    stats = worker.graph_stats()
    phases = {Phase.DECODE} if num_drafts == 0 else {Phase.TARGET_VERIFY, Phase.DRAFT_EXTEND}
    phases |= {Phase.DRAFT} if num_drafts > 1 else set()
    assert set(stats.replays) == phases
    assert set(stats.eager) == {Phase.PREFILL}
    assert stats.padded_requests > 0
    assert {graph.requests for graph in stats.graphs} >= {4, 1}


@pytest.mark.parametrize("lengths_known", [True, False])
def test_what_a_padded_replay_hands_on_equals_the_exact_one(lengths_known):
    """Every request's next draft and its streams, which the relay keeps, after some steps."""
    relays = []
    for graphs in (False, True):
        worker = make_worker(graphs=graphs, poison_graphs=True, lengths_known=lengths_known)
        requests = batch(3, output=40)
        do(worker, StepPlan(chunks=prefill(*requests)))
        for _ in range(5):
            do(worker, StepPlan(running=running(*requests)))
        relays.append(worker.relay)
    eager, captured = relays
    assert torch.equal(captured.first_draft, eager.first_draft)
    assert torch.equal(captured.seq_lens, eager.seq_lens)
    assert worst(captured.streams, eager.streams) < 1e-5
    assert captured.seq_lens[0] == captured.newest[0] == 0, "padding leaves nothing in its slot"


def test_capturing_at_start_holds_every_bucket():
    worker = make_worker(num_drafts=2, max_requests=3, graphs=True, capture_at_start=True, poison_graphs=True)
    graphs = {(graph.phase, graph.requests) for graph in worker.graph_stats().graphs}
    assert graphs == {
        (phase, bucket) for phase in (Phase.DRAFT, Phase.TARGET_VERIFY, Phase.DRAFT_EXTEND) for bucket in (1, 2, 3)
    }
    assert generate(worker, batch(3)) == generate(make_worker(num_drafts=2, graphs=False), batch(3))


def test_phases_announce_the_decision_and_the_fault_of_29202_shows():
    hooks = RecordingHooks()
    environment = {"DSV4_DISABLE_DRAFT_EXTEND_CUDA_GRAPH": "1"}
    worker = make_worker(graphs=True, hooks=hooks, environment=environment)
    generate(worker, batch(1))
    told = {(each["phase"], each["captured"], each["reason"]) for each in hooks.phases}
    assert told == {
        (Phase.PREFILL, False, "eager: the rows of a prefill step differ from step to step"),
        (Phase.DRAFT, True, "captured: bucket of 1"),
        (Phase.TARGET_VERIFY, True, "captured: bucket of 1"),
        (Phase.DRAFT_EXTEND, False, "eager: DSV4_DISABLE_DRAFT_EXTEND_CUDA_GRAPH is set"),
    }
    forgotten = RecordingHooks()
    generate(make_worker(hooks=forgotten, environment={"DSV4_GRAPH_GATE_WITHOUT": "reference"}), batch(1))
    reasons = {each["reason"] for each in forgotten.phases if each["phase"] is Phase.DRAFT_EXTEND}
    assert reasons == {"eager: backend reference is not in the gate"}


def test_phases_may_be_captured_and_eager_in_one_step():
    """The verify is padded to 4 requests and the eager draft-extend computes 3: its inputs are cut to them."""
    eager = generate(make_worker(graphs=False), batch(3))
    assert generate(make_worker(graphs=True, poison_graphs=True, draft_extend_graph=False), batch(3)) == eager


@dataclass(frozen=True)
class Doubling:
    """A program that adds a host value to twice its input."""

    host: list[int]
    phase: Phase = Phase.DECODE
    width: int = 1

    def example(self, requests):
        return {"x": torch.zeros(requests)}

    def __call__(self, inputs):
        return {"y": inputs["x"] * 2 + self.host[0]}


FACTS = GateFacts(
    backend="reference", device="cpu", environment={}, graphs=True, draft_extend_graph=True,
    buckets=(1, 2, 4), widths={Phase.DECODE: 1},
)  # fmt: skip


def test_outputs_are_the_graphs_own_and_last_until_the_next_replay():
    graph = CpuGraphMaker().capture(Doubling([0]), {"x": torch.zeros(2)})
    first = graph.replay({"x": torch.tensor([1.0, 2.0])})["y"]
    kept = first.clone()
    graph.replay({"x": torch.tensor([5.0, 5.0])})
    assert kept.tolist() == [2, 4]
    assert first.tolist() == [10, 10]


def test_what_is_no_input_stays_what_it_was_at_the_capture():
    stale = torch.full((2,), 7.0)
    graph = CpuGraphMaker(poison=True).capture(lambda inputs: {"y": inputs["x"] + stale}, {"x": torch.zeros(2)})
    assert graph.replay({"x": torch.ones(2)})["y"].tolist() == [8, 8]


@pytest.mark.parametrize(
    "forgotten", ["input_ids", "plan.store", "plan.stream_place.4", "rotations.rows.128", "meta.compress.4.flat_index"]
)
def test_poison_shows_a_tensor_that_the_copy_forgot(monkeypatch, forgotten):
    expected = generate(make_worker(num_drafts=0, graphs=False), batch(2))
    copy = tree.copy_

    def forgetful(target, source):
        copy(target, source)
        for name, tensor in tree.tensors(target).items():
            if name == forgotten:
                tensor.fill_(1 << 30)

    monkeypatch.setattr(tree, "copy_", forgetful)
    worker = make_worker(num_drafts=0, graphs=True, poison_graphs=True)
    with suppress(IndexError, RuntimeError):
        assert generate(worker, batch(2)) != expected


@pytest.mark.parametrize("wrong", [torch.zeros(3), torch.zeros(2, dtype=torch.int64), torch.zeros(2, 1)])
def test_inputs_of_another_form_are_refused(wrong):
    graph = CpuGraphMaker().capture(Doubling([0]), {"x": torch.zeros(2)})
    with pytest.raises(EngineError, match="x is"):
        graph.replay({"x": wrong})


class Stingy:
    """A device with little memory, where captures of more than one request run out of it."""

    def __init__(self, free: int) -> None:
        self.free, self.asked, self.looked = free, 0, 0

    def free_bytes(self) -> int:
        self.looked += 1
        return self.free

    def capture(self, function, example):
        self.asked += 1
        if len(example["x"]) > 1:
            raise torch.OutOfMemoryError("no")
        return CpuGraphMaker().capture(function, example)


def test_running_out_of_memory_is_a_counted_fallback_and_not_tried_again():
    maker = Stingy(free=1 << 40)
    dispatch = GraphDispatch(FACTS, maker, [Doubling([0])])
    for _ in range(3):
        route = dispatch.route(Phase.DECODE, requests=2, width=1)
        assert (route.captured, route.requests) == (False, 2)
        assert route.reason == "eager: capturing a bucket of 2 ran out of memory"
        assert dispatch.run(route, {"x": torch.ones(2)})["y"].tolist() == [2, 2]
    assert maker.asked == 1
    assert dispatch.route(Phase.DECODE, requests=1, width=1).captured
    stats = dispatch.stats()
    assert stats.reasons == ((Phase.DECODE, "eager: capturing a bucket of 2 ran out of memory", 3),)
    assert (stats.eager, stats.replays) == ({Phase.DECODE: 3}, {Phase.DECODE: 1})


def test_a_call_that_cannot_be_captured_is_a_fallback_with_its_reason():
    class Refusing(Stingy):
        def capture(self, function, example):
            raise RuntimeError("operation not permitted when stream is capturing\nmore")

    dispatch = GraphDispatch(FACTS, Refusing(free=1 << 40), [Doubling([0])])
    route = dispatch.route(Phase.DECODE, requests=2, width=1)
    assert route.reason == "eager: capturing a bucket of 2 failed: operation not permitted when stream is capturing"
    assert dispatch.run(route, {"x": torch.ones(2)})["y"].tolist() == [2, 2]


@pytest.mark.parametrize("free", [0, 1 << 40])
def test_replicas_that_share_experts_do_not_fall_back_alone(free):
    dispatch = GraphDispatch(FACTS, Stingy(free=free), [Doubling([0])], with_peers=True)
    assert dispatch.route(Phase.DECODE, requests=1, width=1, peer_requests=1).captured, "whatever is free here"
    with pytest.raises(EngineError, match="capturing a graph of 2 requests failed on this rank"):
        dispatch.route(Phase.DECODE, requests=1, width=1, peer_requests=2)


def test_little_memory_is_seen_before_a_capture():
    maker = Stingy(free=1 << 20)
    dispatch = GraphDispatch(FACTS, maker, [Doubling([0])])
    assert dispatch.route(Phase.DECODE, requests=1, width=1).reason == (
        "eager: a graph may take 64 MiB, and the device has 1 MiB free"
    )
    maker.free = 1 << 21
    dispatch.route(Phase.DECODE, requests=1, width=1)
    [(_, reason, times)] = dispatch.stats().reasons
    assert times == 2 and "1 MiB free" in reason, "a sentence a step would be no reason"
    assert (maker.asked, maker.looked) == (0, 1)


@pytest.mark.parametrize("changes", [{"graphs": False}, {"backend": "abacus"}])
def test_the_driver_is_not_asked_for_memory_where_nothing_is_captured(changes):
    maker = Stingy(free=1 << 40)
    dispatch = GraphDispatch(replace(FACTS, **changes), maker, [Doubling([0])])
    for _ in range(3):
        assert not dispatch.route(Phase.DECODE, requests=1, width=1).captured
        assert not dispatch.route(Phase.PREFILL, requests=1, width=0).captured
    assert maker.looked == 0


def test_tensor_parallel_ranks_do_not_fall_back_alone(monkeypatch):
    settings = _worker_settings(EngineOptions(graphs=True), ParallelSizes(tp=2))
    assert settings.with_peers and not settings.shared_experts
    assert not _worker_settings(EngineOptions(graphs=True), ParallelSizes()).with_peers
    monkeypatch.setattr(CpuGraphMaker, "capture", Mock(side_effect=torch.OutOfMemoryError("no")))
    generate(make_worker(graphs=True), batch(1))
    with pytest.raises(EngineError, match="capturing a graph of 1 requests failed on this rank"):
        generate(make_worker(graphs=True, with_peers=True), batch(1))


@pytest.mark.parametrize("requests", [1, 2, 3, 4])
def test_the_bucket_is_the_next_larger_one_and_a_larger_batch_falls_back(requests):
    dispatch = GraphDispatch(FACTS, CpuGraphMaker(), [Doubling([0])])
    route = dispatch.route(Phase.DECODE, requests=requests, width=1)
    assert route.requests == {1: 1, 2: 2, 3: 4, 4: 4}[requests]
    assert dispatch.stats().padded_requests == route.requests - requests
    larger = dispatch.route(Phase.DECODE, requests=5, width=1)
    assert (larger.captured, larger.requests) == (False, 5)
    small = GraphDispatch(replace(FACTS, buckets=(1,)), CpuGraphMaker(), [Doubling([0])])
    assert not small.route(Phase.DECODE, requests=requests + 1, width=1).captured


def test_a_model_that_reads_on_the_host_stays_eager_and_says_so(monkeypatch):
    monkeypatch.setattr(moe, "_DENSE_MAX_EXPERTS", 4)
    hooks = RecordingHooks()
    generate(make_worker(graphs=True, hooks=hooks), batch(1))
    reasons = {each["reason"] for each in hooks.phases if each["phase"] is Phase.TARGET_VERIFY}
    (reason,) = reasons
    assert reason.startswith("eager: the model reads on the host: 8 experts on a rank")
