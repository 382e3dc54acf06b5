"""What a step costs and tells: no hidden reads or uploads, tails, simulated lengths, steps of replicas."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from dsv4_engine.errors import EngineError
from dsv4_engine.phase import Phase
from dsv4_engine.plan import PeerLoad, Running, StepPlan, TailSave
from dsv4_engine.request import SamplingParams
from dsv4_engine.sampling import rows
from dsv4_engine.spec import relay
from dsv4_engine.spec.accept import accept_chain, simulated_accept_lens
from engine_batches import OperatorLog
from serving import RecordingHooks
from worker_steps import do, generate, make_request, make_worker, prefill, running

COSTLY = SamplingParams(temperature=0.7, top_p=0.9, frequency_penalty=0.5, logprobs=3)


@pytest.mark.parametrize("params", [SamplingParams(), COSTLY], ids=["greedy", "everything"])
@pytest.mark.parametrize("num_drafts", [0, 3])
def test_a_step_reads_nothing_before_its_tokens_are_asked_for(num_drafts, params):
    worker = make_worker(num_drafts=num_drafts, lengths_known=False)
    batch = [make_request(slot, 12, sampling=params) for slot in (1, 2)]
    late = make_request(3, 7, sampling=params)
    for plan in (
        StepPlan(chunks=prefill(*batch)),
        StepPlan(running=tuple(Running(request=each, max_cached=12) for each in batch)),
        StepPlan(chunks=prefill(late), running=tuple(Running(request=each, max_cached=16) for each in batch)),
    ):
        with OperatorLog() as log:
            pending = worker.launch(plan)
        assert log.reads == [], plan.kind
        pending.read()


@pytest.mark.parametrize("params", [SamplingParams(), COSTLY], ids=["greedy", "everything"])
def test_a_decode_batch_that_stays_the_same_uploads_nothing(monkeypatch, params):
    worker = make_worker(num_drafts=2)
    batch = [make_request(slot, 12, sampling=params) for slot in (1, 2)]
    uploads: list[object] = []
    for module in (rows, relay):
        kept = module.upload
        monkeypatch.setattr(
            module, "upload", lambda values, device, kept=kept: uploads.append(values) or kept(values, device)
        )
    do(worker, StepPlan(chunks=prefill(*batch)))
    do(worker, StepPlan(running=running(*batch)))
    assert (1, 2) in uploads
    uploads.clear()
    for _ in range(3):
        do(worker, StepPlan(running=running(*batch)))
    assert uploads == []
    do(worker, StepPlan(running=running(*batch[1:])))
    assert (2,) in uploads


def test_reading_has_its_span_and_tells_the_acceptance():
    hooks = RecordingHooks()
    worker = make_worker(num_drafts=2, hooks=hooks)
    request = make_request(1, 20)
    half = replace(prefill(request)[0], length=8)
    assert worker.launch(StepPlan(chunks=(half,))).read().tokens == ((),)
    assert "read_tokens" not in [name for name, _ in hooks.entered], "no token, no wait"
    do(worker, StepPlan(chunks=(replace(half, start=8, length=12),)))
    assert hooks.acceptances == []
    pending = worker.launch(StepPlan(running=running(request)))
    names = [name for name, _ in hooks.entered]
    outcome = pending.read()
    assert [name for name, _ in hooks.entered][len(names) :] == ["read_tokens", "accepted"]
    assert hooks.acceptances == [(1, len(outcome.tokens[0]))] == [(1, outcome.accept_lens[0])]


class TailRecorder:
    """A runner that only notes which tails it is to keep."""

    def __init__(self, runner) -> None:
        self._runner, self.saved, self.in_prefill = runner, [], []

    def __getattr__(self, name):
        return getattr(self._runner, name)

    def prepare(self, batch, *, compress):
        self.in_prefill.append(batch.tail_saves)
        return self._runner.prepare(replace(batch, tail_saves=()), compress=compress)

    def save_tails(self, *columns):
        self.saved.append([column.tolist() for column in columns])


def test_tails_go_to_the_pass_or_follow_it_with_what_was_committed():
    worker = make_worker(num_drafts=3)
    old, new = make_request(1, 10), make_request(2, 9)
    do(worker, StepPlan(chunks=prefill(old)))
    worker.model = TailRecorder(worker.model)
    saves = (TailSave(slot=2, boundary=8, tail=5), TailSave(slot=1, boundary=12, tail=6))
    gained = do(worker, StepPlan(chunks=prefill(new), running=running(old), tail_saves=saves)).accept_lens[0]
    assert worker.model.in_prefill == [(), (), saves[:1], saves[:1]], "two draft steps, target and MTP pass"
    assert worker.model.saved == [[[1], [12], [6], [10], [10 + gained]]]
    decode = (TailSave(slot=2, boundary=11, tail=7), TailSave(slot=1, boundary=99, tail=8))
    outcome = do(worker, StepPlan(running=running(old, new), tail_saves=decode))
    ends = [9 + outcome.accept_lens[1], 10 + gained + outcome.accept_lens[0]]
    assert worker.model.saved[1:] == [[[2, 1], [11, 99], [7, 8], [9, 10 + gained], ends]]


@pytest.mark.parametrize("mean", [1, 1.25, 2.914, 4])
def test_simulated_lengths_have_their_mean_and_can_be_repeated(mean):
    seeds, starts = torch.arange(4000), torch.arange(4000) // 7
    lengths = simulated_accept_lens(seeds, starts, mean=mean)
    assert set(lengths.tolist()) == {int(mean), -int(-mean // 1)}
    assert lengths.double().mean().item() == pytest.approx(mean, abs=0.03)
    assert torch.equal(lengths, simulated_accept_lens(seeds, starts, mean=mean))


def test_a_worker_gains_what_it_is_told_to():
    worker = make_worker(num_drafts=3, simulate_accept_len=2.5)
    runs = []
    for _ in range(2):
        batch = [make_request(slot, 12, seed=slot, output=100) for slot in (1, 2)]
        do(worker, StepPlan(chunks=prefill(*batch)))
        lens = [do(worker, StepPlan(running=running(*batch))).accept_lens for _ in range(12)]
        runs.append((lens, [each.output for each in batch]))
    assert runs[0] == runs[1]
    assert {gained for step in runs[0][0] for gained in step} == {2, 3}


@pytest.mark.parametrize(("num_drafts", "mean"), [(3, 0.5), (3, 4.5), (0, 1.0), (3, float("nan"))])
def test_impossible_lengths_are_refused(num_drafts, mean):
    with pytest.raises(EngineError, match="simulate_accept_len"):
        make_worker(num_drafts=num_drafts, simulate_accept_len=mean)


def test_only_drafts_before_the_first_wrong_one_count():
    predicted = torch.tensor([[5, 6, 7, 8]] * 4)
    drafts = torch.tensor([[5, 6, 7], [0, 6, 7], [5, 0, 7], [5, 6, 0]])
    assert accept_chain(drafts, predicted).tolist() == [4, 1, 2, 3]


@pytest.mark.parametrize("graphs", [False, True])
@pytest.mark.parametrize("num_drafts", [0, 1, 3])
def test_a_replica_computes_along_with_its_peers(num_drafts, graphs):
    """Its tokens are those it gives alone, and without work of its own it makes the same forwards and tells nothing."""
    expected = generate(make_worker(num_drafts=num_drafts), [make_request(1, 9, output=8)])
    hooks = RecordingHooks()
    worker = make_worker(num_drafts=num_drafts, graphs=graphs, shared_experts=True, hooks=hooks, poison_graphs=True)
    idle = worker.launch(StepPlan(peers=PeerLoad(chunk_rows=5, running=0))).read()
    assert idle.tokens == idle.accept_lens == ()
    request = make_request(1, 9, output=8)
    do(worker, StepPlan(chunks=prefill(request), peers=PeerLoad(chunk_rows=30, running=0)))
    while request.finish_reason is None:
        do(worker, StepPlan(running=running(request), peers=PeerLoad(chunk_rows=0, running=3)))
        before = len(hooks.phases)
        assert worker.launch(StepPlan(peers=PeerLoad(chunk_rows=0, running=2))).read().tokens == ()
        made = {told["phase"] for told in hooks.phases[before:]}
        assert Phase.DECODE in made if num_drafts == 0 else Phase.DRAFT_EXTEND in made
    assert [tuple(request.output)] == expected
    captured = {graph.requests for graph in worker.graph_stats().graphs}
    assert captured == ({2, 4} if graphs else set()), "the bucket follows the peers"


def test_peers_decide_how_many_rows_the_experts_expect(monkeypatch):
    worker, seen = make_worker(num_drafts=3, shared_experts=True), []
    prepare = worker.model.prepare
    monkeypatch.setattr(
        worker.model,
        "prepare",
        lambda batch, *, compress: seen.append(batch.peer_rows) or prepare(batch, compress=compress),
    )
    request = make_request(1, 9)
    do(worker, StepPlan(chunks=prefill(request), peers=PeerLoad(chunk_rows=30, running=0)))
    do(worker, StepPlan(running=running(request), peers=PeerLoad(chunk_rows=0, running=3)))
    assert seen == [30, 30, 3, 3, 12, 12]
