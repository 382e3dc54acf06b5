"""Log-probabilities are those of the model's own distribution, whatever was done to the logits afterwards."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from dsv4_engine.plan import StepPlan
from dsv4_engine.request import SamplingParams
from engine_batches import make_batch
from worker_steps import do, generate, make_request, make_worker, prefill, running


@pytest.fixture(scope="module")
def worker():
    return make_worker(num_drafts=2)


def reference_logprobs(worker, request) -> torch.Tensor:
    """(outputs, V): log_softmax after each prefix of prompt and output, from one prefill of everything."""
    tokens = torch.tensor(request.tokens)
    logits = worker.model.forward_target(make_batch((4, 0, tokens))).logits
    return torch.log_softmax(logits, 1)[len(request.prompt) - 1 : -1]


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(logprobs=0),
        SamplingParams(logprobs=5),
        SamplingParams(logprobs=20, temperature=0.9, top_p=0.8, repetition_penalty=1.4, frequency_penalty=0.5),
    ],
    ids=["chosen only", "greedy", "drawn and penalised"],
)
def test_equal_log_softmax(worker, params):
    request, silent = make_request(1, 11, sampling=params, output=9), make_request(2, 30, output=5)
    generate(worker, [request, silent])
    expected = reference_logprobs(worker, request)
    assert silent.logprobs == []
    assert len(request.logprobs) == len(request.output) == 9
    for token, told, row in zip(request.output, request.logprobs, expected, strict=True):
        assert told.logprob == pytest.approx(row[token].item(), abs=1e-4)
        best = row.topk(params.logprobs)
        assert [logprob for _, logprob in told.top] == pytest.approx(best.values.tolist(), abs=1e-4)
        assert [token for token, _ in told.top] == best.indices.tolist()


def test_each_request_gets_as_many_as_it_asked_for(worker):
    """Also in a mixed step, where a prompt ends beside running requests, and one that has not ended."""
    few, many = (make_request(slot, 6 + slot, sampling=SamplingParams(logprobs=slot)) for slot in (1, 3))
    do(worker, StepPlan(chunks=prefill(few)))
    unfinished = make_request(2, 40, sampling=SamplingParams(logprobs=1))
    chunks = (*prefill(unfinished), *prefill(many))
    chunks = (replace(chunks[0], length=17), chunks[1])
    outcome = do(worker, StepPlan(chunks=chunks, running=running(few)))
    assert [len(tokens) for tokens in outcome.logprobs] == [0, 1, len(outcome.tokens[2])]
    assert {len(told.top) for told in outcome.logprobs[1]} == {3}
    assert {len(told.top) for told in outcome.logprobs[2]} == {1}


def test_nobody_asks_nothing_is_told(worker):
    outcome = do(worker, StepPlan(chunks=prefill(make_request(1))))
    assert outcome.logprobs == ()
